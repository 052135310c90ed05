/** What differs between this experiment and another one, shown on demand. */

import type { Diff } from '../api/types';
import type { Look, Watch } from '../service/watch';
import { differencesOf } from '../model/difference';
import { Disclosure } from './disclosure';
import { h, setChildren, show } from './dom';
import { Attempt, form, submit } from './form';
import { isThere } from './verbs';

export class DifferencePart {
  private readonly _other = h('input', { type: 'number', min: 1, step: 1, required: true });
  private readonly _go = submit('Compare');
  private readonly _list = h('dl', { class: 'dl-differences', hidden: true });
  private readonly _asking = new Attempt();

  readonly root = h(
    'section',
    { class: 'dl-difference', hidden: true, 'aria-label': 'Differences' },
    form('Differences', () => void this._ask(), h('label', {}, 'Differences from #', this._other), this._go),
    this._list,
    this._asking.error
  );
  readonly disclosure = new Disclosure('Diff', this.root, () => this._opened());

  constructor(private readonly _watch: Pick<Watch, 'ask' | 'look'>) {}

  update(look: Look): void {
    this.disclosure.offer(look.heard && isThere(look));
  }

  private _opened(): void {
    const before = this._watch.look.overview?.experiment.rerun_of ?? this._watch.look.number - 1;
    this._other.value ||= before > 0 ? String(before) : '';
    this._other.focus();
  }

  private _ask(): Promise<boolean> {
    return this._asking.run(async () => {
      show(this._list, false);
      this._draw((await this._watch.ask('/diff', { before: this._other.valueAsNumber })) as Diff);
    }, this._go);
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
