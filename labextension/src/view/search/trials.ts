/** Table of a search's trials, best first, or sorted by a selected column. */

import type { SearchStatus, TrialRow } from '../../api/types';
import type { Steer } from '../../service/watch';
import { changes, h, setChildren, setText, show } from '../dom';
import { type Column, columnsOf, noteText } from './columns';
import { ranks } from './scale';
import { TrialRow as Row } from './trialrow';

const SHOWN = 200; // rows; job.trials() returns more

export class TrialTable {
  private readonly _head = h('tr');
  private readonly _body = h('tbody');
  private readonly _note = h('p', { class: 'dl-dim' });
  private readonly _rows = new Map<number, Row>();
  private readonly _changed = changes();
  private _columns: readonly Column[] = [];
  readonly root: HTMLElement;
  sort = 'best';

  /**
   * `sorted` is called when another order is selected, `picked` with a clicked trial, and `steered` with an action on a
   * trial; `steers` returns the possible actions.
   */
  constructor(
    private readonly _sorted: () => void,
    private readonly _picked: (trial: number) => void,
    private readonly _steers: (row: TrialRow) => readonly Steer[],
    private readonly _steered: (trial: number, verb: Steer, opener: HTMLElement) => void
  ) {
    const table = h(
      'table',
      { class: 'dl-table dl-trials', 'aria-label': 'Trials' },
      h('thead', {}, this._head),
      this._body
    );
    this.root = h(
      'section',
      { class: 'dl-trials-part' },
      h('div', { class: 'dl-wide dl-trials-box', tabindex: 0, role: 'group', 'aria-label': 'Trials' }, table),
      this._note
    );
  }

  /** Show those of the trials for which `shown` returns true. */
  update(status: SearchStatus, shown: (row: TrialRow) => boolean, chosen: number | null): void {
    this._columns = columnsOf(status);
    this._heads();
    const rank = ranks(status.trials, status.metric);
    const through = status.trials.filter(shown);
    const rows = through.slice(0, SHOWN);
    const kept = new Set(rows.map(row => row.trial));
    [...this._rows.keys()].filter(trial => !kept.has(trial)).forEach(trial => this._rows.delete(trial));
    setChildren(
      this._body,
      rows.map(row => this._row(status, row, rank.get(row.trial) ?? null, row.trial === chosen))
    );
    const total = Object.values(status.counts).reduce((sum, count) => sum + count, 0);
    setText(this._note, noteText(rows.length, through.length, status.trials.length, total));
    show(this._note, this._note.textContent !== '');
  }

  private _heads(): void {
    if (!this._changed(this.sort, this._columns.map(column => column.name).join('\n'))) {
      return;
    }
    const heads = this._columns.map(({ name, head }) => {
      const [up, down] = [this.sort === name, this.sort === `-${name}`];
      const press = h('button', { type: 'button', class: 'dl-sort', onclick: () => this._sortBy(name) }, head);
      const mark = h('span', { 'aria-hidden': 'true' }, up ? ' \u2191' : down ? ' \u2193' : '');
      press.append(mark);
      return h('th', { scope: 'col', 'aria-sort': up ? 'ascending' : down ? 'descending' : 'none' }, press);
    });
    heads.push(h('th', { class: 'dl-steer' }, h('span', { class: 'dl-unseen' }, 'steer')));
    const focused = [...this._head.children].findIndex(each => each.contains(document.activeElement));
    setChildren(this._head, heads);
    if (focused >= 0) {
      heads[focused]?.querySelector('button')?.focus(); // return the focus, for keyboard users
    }
  }

  private _sortBy(name: string): void {
    this.sort = this.sort === name ? `-${name}` : name;
    this._sorted();
  }

  private _row(status: SearchStatus, row: TrialRow, rank: number | null, chosen: boolean): HTMLElement {
    const { trial } = row;
    const known = this._rows.get(trial) ?? new Row(() => this._picked(trial), this._steering(trial));
    this._rows.set(trial, known);
    known.root.classList.toggle('dl-chosen', chosen);
    known.root.classList.toggle('dl-is-best', trial === status.best?.trial);
    const cells = this._columns.map(column => column.cell(row));
    known.update(row, cells, rank, this._steers(row));
    return known.root;
  }

  private _steering(trial: number) {
    return (verb: Steer, opener: HTMLElement): void => this._steered(trial, verb, opener);
  }
}
