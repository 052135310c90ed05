/** Table of a search's trials, best first, or sorted by a selected column; in groups, if a hyperparameter is selected. */

import type { SearchStatus, TrialRow } from '../../api/types';
import type { Steer } from '../../service/watch';
import { changes, h, setText, show } from '../dom';
import { type Column, type RowView, SortedTable } from '../sortedtable';
import { columnsOf, directionOf, noteText } from './columns';
import { ranks } from './scale';
import { groupText, trialGroups } from './trialgroups';
import { TrialRow as Row } from './trialrow';

const SHOWN = 200; // rows; job.trials() returns more

export class TrialTable {
  private readonly _table: SortedTable<TrialRow>;
  private readonly _note = h('p', { class: 'dl-dim' });
  private readonly _offered = changes();
  private readonly _by = h('select', { onchange: () => this._regroup() });
  private readonly _grouping = h('div', { class: 'dl-toolbar' }, h('label', {}, 'Group by ', this._by));
  private _columns: readonly Column<TrialRow>[] = [];
  private _rank: ReadonlyMap<number, number> = new Map();
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
    this._table = new SortedTable({
      name: 'Trials',
      look: 'dl-trials',
      tail: h('th', { class: 'dl-steer' }, h('span', { class: 'dl-unseen' }, 'steer')),
      key: row => row.trial,
      make: ({ trial }) => this._row(trial),
      sorted: column => this._sortBy(column)
    });
    this.root = h('section', { class: 'dl-trials-part' }, this._grouping, this._table.root, this._note);
  }

  dispose(): void {
    this._table.dispose();
  }

  /** Show those of the trials for which `shown` returns true. */
  update(status: SearchStatus, shown: (row: TrialRow) => boolean, chosen: number | null): void {
    this._drawn = [status, shown, chosen];
    this._columns = columnsOf(status);
    this._offer(status.params);
    this._rank = ranks(status.trials, status.metric);
    const through = status.trials.filter(shown);
    const by = this._by.value;
    const groups = by === '' ? [{ title: '', rows: through }] : trialGroups(through, by).slice(0, SHOWN);
    const most = Math.floor(SHOWN / Math.max(1, groups.length)); // rows of a group
    const sections = groups.map(group => ({
      title: by === '' ? '' : `${group.title}: ${groupText(group, status.metric, status.number)}`,
      rows: group.rows.slice(0, most)
    }));
    const rows = sections.flatMap(section => section.rows);
    this._table.update(this._columns, name => directionOf(name, this.sort, status.metric), sections);
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

  private _sortBy(name: string): void {
    this.sort = this.sort === name ? `-${name}` : name;
    this._sorted();
  }

  private _row(trial: number): RowView<TrialRow> {
    const known = new Row(
      () => this._picked(trial),
      (verb, opener) => this._steered(trial, verb, opener)
    );
    const update = (row: TrialRow): void => {
      const [status, , chosen] = this._drawn ?? [];
      known.root.classList.toggle('dl-chosen', trial === chosen);
      known.root.classList.toggle('dl-is-best', trial === status?.best?.trial);
      known.update(row, this._columns, this._rank.get(trial) ?? null, this._steers(row));
    };
    return { root: known.root, update };
  }
}
