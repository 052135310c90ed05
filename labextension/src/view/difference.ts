/** What differs between this experiment and another one, shown on demand. */

import type { Diff } from '../api/types';
import type { Look, Watch } from '../service/watch';
import { differencesOf } from '../model/difference';
import { Disclosure } from './disclosure';
import { h, setChildren, setText, show } from './dom';

export class DifferencePart {
  private readonly _other = h('input', { type: 'number', min: 1, step: 1, required: true });
  private readonly _go = h('button', { type: 'submit', class: 'dl-button' }, 'Compare');
  private readonly _list = h('dl', { class: 'dl-differences', hidden: true });
  private readonly _error = h('p', { class: 'dl-act-error', role: 'alert' });
  private readonly _form: HTMLFormElement;

  readonly root: HTMLElement;
  readonly disclosure: Disclosure;

  constructor(private readonly _watch: Pick<Watch, 'ask' | 'look'>) {
    const submitted = (event: Event): void => {
      event.preventDefault();
      void this._ask();
    };
    this._form = h(
      'form',
      { class: 'dl-more', 'aria-label': 'Differences', onsubmit: submitted },
      h('label', {}, 'Differences from #', this._other),
      this._go
    );
    this.root = h(
      'section',
      { class: 'dl-difference', hidden: true, 'aria-label': 'Differences' },
      this._form,
      this._list,
      this._error
    );
    this.disclosure = new Disclosure('Diff', this.root, () => this._opened());
  }

  update(look: Look): void {
    const there = look.overview !== null && look.heard && look.connection !== 'gone' && look.connection !== 'foreign';
    this.disclosure.offer(there);
  }

  private _opened(): void {
    const before = this._watch.look.overview?.experiment.rerun_of ?? this._watch.look.number - 1;
    this._other.value ||= before > 0 ? String(before) : '';
    this._other.focus();
  }

  private async _ask(): Promise<void> {
    this._go.disabled = true;
    setText(this._error, '');
    try {
      this._draw((await this._watch.ask('/diff', { before: this._other.valueAsNumber })) as Diff);
    } catch (error) {
      show(this._list, false);
      setText(this._error, error instanceof Error ? error.message : String(error));
    }
    this._go.disabled = false;
  }

  private _draw(diff: Diff): void {
    const rows = differencesOf(diff).flatMap(({ kind, text, detail, dim }) => [
      h('dt', {}, kind),
      h(
        'dd',
        dim ? { class: 'dl-dim' } : {},
        text,
        detail ? h('pre', { class: 'dl-pre', tabindex: 0, 'aria-label': text }, detail) : null
      )
    ]);
    setChildren(this._list, rows);
    show(this._list, true);
  }
}
