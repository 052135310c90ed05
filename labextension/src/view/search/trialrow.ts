/** Row of the table of trials, updated in place. */

import type { TrialRow as Row } from '../../api/types';
import type { Steer } from '../../service/watch';
import { button, h, setAttribute, setText, show } from '../dom';
import type { Column } from '../sortedtable';
import { shade } from './scale';

const STEERS: readonly (readonly [Steer, string])[] = [
  ['promote', 'goes on next, whatever its rank'],
  ['prune', 'is given up for good']
];

export class TrialRow {
  private readonly _rank = h('span', { class: 'dl-rank' });
  private readonly _pick = h('button', { type: 'button', class: 'dl-pick' });
  private readonly _chip = h('span', { class: 'dl-chip' });
  private readonly _cells: HTMLElement[] = [];
  private readonly _buttons = new Map<Steer, HTMLButtonElement>();
  private readonly _last = h('td', { class: 'dl-steer' });
  readonly root: HTMLTableRowElement;

  /** `picked` is called when the row is clicked, `steered` with an action and the pressed button. */
  constructor(picked: () => void, steered: (verb: Steer, opener: HTMLElement) => void) {
    for (const [verb, what] of STEERS) {
      const press = button(verb, () => steered(verb, press), 'dl-small');
      setAttribute(press, 'title', what);
      this._buttons.set(verb, press);
    }
    this._last.append(...this._buttons.values());
    this._last.addEventListener('click', event => event.stopPropagation()); // the buttons of a row do not select it
    const first = h('th', { scope: 'row' }, this._rank, this._pick);
    this.root = h('tr', { tabindex: -1, onclick: picked }, first, h('td', {}, this._chip), this._last);
  }

  /** Update the row; `columns` begin with name and state, `steers` are the possible actions. */
  update(row: Row, columns: readonly Column<Row>[], rank: number | null, steers: readonly Steer[]): void {
    const [name = '', state = '', ...rest] = columns.map(column => column.cell(row));
    this._rank.style.background = shade(rank);
    setText(this._pick, name);
    setText(this._chip, state);
    setAttribute(this._chip, 'data-state', row.state);
    rest.forEach((text, index) => {
      const cell = (this._cells[index] ??= this._cell());
      setText(cell, text);
      cell.classList.toggle('dl-numeric', columns[index + 2]?.numeric ?? false);
    });
    this._cells.splice(rest.length).forEach(cell => cell.remove());
    const focused = this._last.contains(document.activeElement) ? document.activeElement : null;
    for (const [verb, press] of this._buttons) {
      show(press, steers.includes(verb));
      setAttribute(press, 'aria-label', `${verb} ${name}`);
    }
    if (focused instanceof HTMLElement && focused.hidden) {
      this._pick.focus(); // return the focus, for keyboard users
    }
  }

  private _cell(): HTMLElement {
    return this.root.insertBefore(h('td'), this._last);
  }
}
