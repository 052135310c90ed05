/** Failure of an experiment: the error, the user's lines by cell, and the traceback in a collapsed element. */

import type { Failure, Frame, Overview } from '../api/types';
import { whereText } from '../model/text';
import type { Look } from '../service/watch';
import { changes, h, setText, show } from './dom';

export class FailureBox {
  private readonly _type = h('strong');
  private readonly _message = h('span', { class: 'dl-message' });
  private readonly _place = h('p', { class: 'dl-dim' });
  private readonly _frames = h('ol', { class: 'dl-frames' });
  private readonly _traceback = h('pre', { class: 'dl-pre', tabindex: 0 });
  private readonly _fold = h('details', { class: 'dl-fold' }, h('summary', {}, 'traceback'), this._traceback);
  private readonly _changed = changes();
  readonly root = h(
    'div',
    { class: 'dl-failure', role: 'group', 'aria-label': 'Failure', hidden: true },
    h('p', { class: 'dl-error' }, this._type, this._message),
    this._frames,
    this._place,
    this._fold
  );

  update(look: Look): void {
    const failure = failureOf(look.overview);
    if (this._changed(failure)) {
      show(this.root, failure !== null);
      if (failure) {
        this._fill(failure);
      }
    }
  }

  private _fill(failure: Failure): void {
    setText(this._type, failure.type);
    setText(this._message, failure.message ? `: ${failure.message}` : '');
    setText(this._place, placeText(failure));
    this._frames.replaceChildren(...failure.frames.map(frameItem));
    setText(this._traceback, failure.traceback);
    show(this._frames, failure.frames.length > 0);
    show(this._fold, failure.traceback !== '');
  }
}

/** Return the failure of an experiment; null if there is none. */
export function failureOf(overview: Overview | null): Failure | null {
  return overview?.trials.find(trial => trial.state === 'failed' && trial.failure)?.failure ?? null;
}

function placeText(failure: Failure): string {
  return `rank ${failure.rank}` + (failure.step === null ? '' : `, step ${failure.step}`);
}

function frameItem(frame: Frame): HTMLElement {
  return h(
    'li',
    {},
    h('span', {}, h('span', { class: 'dl-where' }, whereText(frame)), `, in ${frame.function}`),
    frame.text ? h('code', {}, frame.text) : null
  );
}
