/** Progress of a training as a bar and as text. */

import type { Overview, Trial } from '../api/types';
import { throughputOf } from '../model/estimate';
import { frontOf } from '../model/overview';
import { knownEpochs, progressText, resultText, runsAsItIs } from '../model/text';
import type { Look } from '../service/watch';
import { h, setAttribute, setText, show } from './dom';

export class Progress {
  private readonly _done = h('div', { class: 'dl-bar-done' });
  private readonly _bar = h(
    'div',
    { class: 'dl-bar', role: 'progressbar', 'aria-label': 'progress', 'aria-valuemin': 0, 'aria-valuemax': 100 },
    this._done
  );
  private readonly _text = h('div', { class: 'dl-progress-text' });
  private readonly _result = h('div', { class: 'dl-result' });
  readonly root = h('div', { class: 'dl-progress' }, this._bar, this._text, this._result);

  update(look: Look): void {
    const { overview } = look;
    const trial = overview ? frontOf(overview) : undefined;
    // A search shows its own progress.
    const shown = overview !== null && trial !== undefined && overview.experiment.config.search === null;
    show(this.root, shown);
    if (shown) {
      this._write(look, overview, trial);
    }
  }

  private _write(look: Look, overview: Overview, trial: Trial): void {
    const { config } = overview.experiment;
    const measured = !runsAsItIs(config); // the length of code that is run unchanged is unknown
    const throughput = look.connection === 'live' ? throughputOf(overview, look.curves, Date.now() / 1000) : null;
    const share = measured ? shareDone(trial, knownEpochs(config)) : null;
    setText(this._text, measured ? progressText(trial, config, throughput) : '');
    setText(this._result, resultText(overview));
    show(this._bar, share !== null);
    if (share !== null) {
      setAttribute(this._bar, 'aria-valuenow', (share * 100).toFixed(0));
      this._done.style.width = `${(share * 100).toFixed(2)}%`;
    }
  }
}

/** Return the completed fraction, from 0 to 1; null if neither the number of steps nor of epochs is known. */
export function shareDone(trial: Trial, epochs: number | null): number | null {
  const [done, all] = trial.total_steps ? [trial.step, trial.total_steps] : [trial.epoch, epochs];
  if (all === null) {
    return null;
  }
  return trial.state === 'completed' ? 1 : Math.min(1, Math.max(0, done / Math.max(all, 1)));
}
