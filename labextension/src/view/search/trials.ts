/** Table of a search's trials, best first, or sorted by a selected column; in groups, if a hyperparameter is selected. */

import type { Metric, SearchStatus, TrialRow } from '../../api/types';
import type { Steer } from '../../service/watch';
import { changes, h, setAttribute, setChildren, setText, show } from '../dom';
import { type Column, columnsOf, directionOf, noteText } from './columns';
import { ranks } from './scale';
import { groupText, type TrialGroup, trialGroups } from './trialgroups';
import { TrialRow as Row } from './trialrow';

const ARROWS = { ascending: ' \u2191', descending: ' \u2193' };
const SHOWN = 200; // rows; job.trials() returns more

export class TrialTable {
  private readonly _head = h('tr');
  private readonly _body = h('tbody');
  private readonly _note = h('p', { class: 'dl-dim' });
  private readonly _rows = new Map<number, Row>();
  private readonly _headings = new Map<string, HTMLTableRowElement>(); // of groups, by title
  private readonly _changed = changes();
  private readonly _offered = changes();
  private readonly _by = h('select', { onchange: () => this._regroup() });
  private readonly _grouping = h('div', { class: 'dl-toolbar' }, h('label', {}, 'Group by ', this._by));
  private _columns: readonly Column[] = [];
  private _drawn: Parameters<TrialTable['update']> | null = null;
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
      this._grouping,
      h('div', { class: 'dl-wide dl-trials-box', tabindex: 0, role: 'group', 'aria-label': 'Trials' }, table),
      this._note
    );
  }

  /** Show those of the trials for which `shown` returns true. */
  update(status: SearchStatus, shown: (row: TrialRow) => boolean, chosen: number | null): void {
    this._drawn = [status, shown, chosen];
    this._columns = columnsOf(status);
    this._heads(status.metric);
    this._offer(status.params);
    const rank = ranks(status.trials, status.metric);
    const through = status.trials.filter(shown);
    const by = this._by.value;
    const groups = by === '' ? [{ title: '', rows: through }] : trialGroups(through, by).slice(0, SHOWN);
    const most = Math.floor(SHOWN / Math.max(1, groups.length)); // rows of a group
    const rows = groups.flatMap(group => group.rows.slice(0, most));
    forget(this._rows, new Set(rows.map(row => row.trial)));
    forget(this._headings, new Set(groups.map(group => group.title)));
    setChildren(
      this._body,
      groups.flatMap(group => [
        ...(by === '' ? [] : [this._heading(group, status)]),
        ...group.rows
          .slice(0, most)
          .map(row => this._row(status, row, rank.get(row.trial) ?? null, row.trial === chosen))
      ])
    );
    const total = Object.values(status.counts).reduce((sum, count) => sum + count, 0);
    const note = noteText(rows.length, through.length, status.trials.length, total);
    const loaded = by !== '' && status.trials.length < total ? `; the groups have the first ${through.length}` : '';
    setText(this._note, note && note + loaded);
    show(this._note, note !== '');
  }

  /** Offer the hyperparameters for grouping, if there are any. */
  private _offer(names: readonly string[]): void {
    if (this._offered(names.join('\n'))) {
      const chosen = this._by.value;
      this._by.replaceChildren(...['', ...names].map(name => h('option', { value: name }, name || 'nothing')));
      this._by.value = names.includes(chosen) ? chosen : '';
    }
    show(this._grouping, names.length > 0);
  }

  private _regroup(): void {
    if (this._drawn) {
      this.update(...this._drawn);
    }
  }

  private _heading(group: TrialGroup, status: SearchStatus): HTMLElement {
    const known =
      this._headings.get(group.title) ?? h('tr', { class: 'dl-trial-group' }, h('th', { scope: 'rowgroup' }));
    this._headings.set(group.title, known);
    const cell = known.children[0] ?? known;
    setAttribute(cell, 'colspan', String(this._columns.length + 1));
    setText(cell, `${group.title}: ${groupText(group, status.metric, status.number)}`);
    return known;
  }

  private _heads(metric: Metric): void {
    const columns = this._columns.map(column => `${column.name} ${column.numeric}`).join('\n');
    if (!this._changed(this.sort, columns)) {
      return;
    }
    const heads = this._columns.map(({ name, head, numeric }) => {
      const direction = directionOf(name, this.sort, metric);
      const press = h('button', { type: 'button', class: 'dl-sort', onclick: () => this._sortBy(name) }, head);
      const mark = h('span', { 'aria-hidden': 'true' }, direction ? ARROWS[direction] : '');
      press.append(mark);
      return h('th', { scope: 'col', class: numeric ? 'dl-numeric' : '', 'aria-sort': direction ?? 'none' }, press);
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
    known.update(row, this._columns, rank, this._steers(row));
    return known.root;
  }

  private _steering(trial: number) {
    return (verb: Steer, opener: HTMLElement): void => this._steered(trial, verb, opener);
  }
}

/** Remove the entries whose keys are not in `kept`. */
function forget<Key>(entries: Map<Key, unknown>, kept: ReadonlySet<Key>): void {
  [...entries.keys()].filter(key => !kept.has(key)).forEach(key => entries.delete(key));
}
