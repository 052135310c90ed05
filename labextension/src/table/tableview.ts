/** The table of experiments: filter, groups, columns, and actions on those that are chosen. */

import { InputDialog } from '@jupyterlab/apputils';

import '../table.css';

import type { ExperimentRow } from '../api/types';
import { tagsIn } from '../model/labels';
import { sentence } from '../model/text';
import { groupByIn, type GroupBy } from '../panel/groupby';
import { MOST_COMPARED } from '../panel/list';
import { sayDeleted, told } from '../panel/notifications';
import { isSure } from '../panel/questions';
import { Memory } from '../panel/remembered';
import type { LiveSettings } from '../panel/settings';
import type { ActionBody, Source } from '../service/source';
import type { Act } from '../service/watch';
import { button, changes, h, keepKeys, setAttribute, setText, show } from '../view/dom';
import { download } from '../view/download';
import { Frame } from '../view/frame';
import { DELETE } from '../view/question';
import { type RowView, SortedTable } from '../view/sortedtable';
import { columnsOf, csvOf, namesIn, sorted, type TableColumn, widthsOf } from './columns';
import { filterIn } from './filter';
import { experimentGroups } from './groups';
import { chosenIn, type Chosen } from './remembered';
import { TableRows } from './rows';

const ENDED = ['completed', 'failed', 'stopped'];
const AT_ONCE = 6; // requests

/** What the table needs of the page. */
export interface TableOptions {
  source: Source;
  settings: LiveSettings;
  baseUrl: string; // by which the browser distinguishes the servers of several users
  act: (number: number, verb: Act, asked?: ActionBody) => Promise<void>;
  open: (numbers: readonly number[]) => void;
}

export class TableView {
  private readonly _rows: TableRows;
  private readonly _memory: Memory<Chosen>;
  private readonly _frame = new Frame(() => this._draw());
  private readonly _table: SortedTable<ExperimentRow>;
  private readonly _search = h('input', {
    type: 'search',
    'aria-label': 'Filter experiments',
    placeholder: 'lr < 0.01  accuracy > 0.9  tag:baseline  state:running  words',
    spellcheck: 'false',
    oninput: () => this._frame.request()
  });
  private readonly _by = h('select', { onchange: () => this._choose({ group: groupByIn(this._by.value) }) });
  private readonly _columnList = h('div', { class: 'dl-column-list' });
  private readonly _columnMenu = h(
    'details',
    { class: 'dl-columns', onkeydown: event => this._closeColumns(event) },
    h('summary', {}, 'Columns'),
    this._columnList
  );
  private readonly _count = h('span', { role: 'status' });
  private readonly _problem = h('p', { class: 'dl-act-error', role: 'status' });
  private readonly _error = h('p', { class: 'dl-act-error', role: 'alert' });
  private readonly _all = h('input', { type: 'checkbox', onchange: () => this._tickAll() });
  private readonly _chosenText = h('span', { role: 'status' });
  private readonly _compare = button('Compare', () => this._options.open([...this._ticked].sort((a, b) => a - b)));
  private readonly _actions: HTMLElement;
  private readonly _ticked = new Set<number>();
  private readonly _changed = changes();
  private readonly _read = changes();
  private _names = namesIn([]);
  private _chosen: Chosen;
  private _offeredColumns: readonly TableColumn[] = [];
  private _columns: readonly TableColumn[] = [];
  private _shown: readonly ExperimentRow[] = []; // in the order of the table
  private _widths: readonly number[] = [];
  private readonly _root: HTMLElement;

  constructor(
    node: HTMLElement,
    private readonly _options: TableOptions,
    watched: boolean
  ) {
    this._memory = new Memory(() => window.localStorage, `daylight:table:${_options.baseUrl}`, chosenIn);
    this._chosen = this._memory.read();
    this._table = new SortedTable({
      name: 'Experiments',
      look: 'dl-experiment-rows',
      lead: h('th', { scope: 'col' }, this._all),
      key: row => row.number,
      make: ({ number }) => this._row(number),
      sorted: column => this._sortBy(column)
    });
    this._actions = h(
      'div',
      { class: 'dl-toolbar dl-table-actions', hidden: true },
      this._chosenText,
      this._compare,
      button('Tag', () => void told(() => this._tag())),
      button('Delete', () => void told(() => this._delete())),
      button('Clear', () => this._tick([...this._ticked], false), 'dl-quiet')
    );
    this._root = h(
      'article',
      // With the frame and the tables of a comparison.
      { class: 'dl-sheet dl-compare dl-experiments', 'aria-label': 'Experiments', onkeydown: keepKeys },
      h(
        'div',
        { class: 'dl-toolbar' },
        this._search,
        h('label', {}, 'Group by', this._by),
        this._columnMenu,
        button('CSV', () => download('experiments.csv', csvOf(this._shown, this._columns))),
        this._count
      ),
      this._problem,
      this._error,
      this._actions,
      this._table.root
    );
    setAttribute(this._all, 'aria-label', 'Choose all that are shown');
    node.append(this._root);
    this._rows = new TableRows(_options.source, _options.settings, () => this._frame.request());
    this._draw();
    this.watched = watched;
  }

  /** Whether the table is visible, and so kept up to date. */
  set watched(watched: boolean) {
    this._rows.watched = watched;
  }

  retry(): void {
    this._rows.refresh();
  }

  dispose(): void {
    this._rows.dispose();
    this._frame.dispose();
    this._table.dispose();
    this._root.remove();
  }

  private _draw(): void {
    const { list, whole, error } = this._rows;
    const fresh = this._read(list);
    const names = (this._names = fresh ? namesIn(list) : this._names);
    this._offeredColumns = fresh ? columnsOf(names, Date.now() / 1000) : this._offeredColumns;
    const { columns: chosen, sort, falls, group } = this._chosen;
    this._columns = this._offeredColumns.filter(({ name, usual }) => name === 'name' || (chosen[name] ?? usual));
    this._offer(names.params, chosen, group);
    const { matches, problem } = filterIn(this._search.value, [...names.params.keys(), ...names.metrics]);
    const column = this._offeredColumns.find(({ name }) => name === sort);
    const through = list.filter(matches);
    const ordered = column ? sorted(through, column, falls) : through;
    const sections = experimentGroups(ordered, group);
    this._shown = group === '' ? ordered : [...new Set(sections.flatMap(({ rows }) => rows))];
    const direction = falls ? 'descending' : 'ascending';
    this._widths = fresh || this._widths.length === 0 ? widthsOf(list, this._columns, this._widths) : this._widths;
    this._table.update(this._columns, name => (name === sort ? direction : null), sections, [2, ...this._widths]);
    const loading = whole || error ? '' : ', loading more';
    const part = through.length < list.length ? `${many(through.length)} of ` : '';
    setText(this._count, `${part}${counted(list.length)}${loading}`);
    setText(this._problem, problem);
    setText(this._error, error && sentence(error));
    this._chosenDrawn();
  }

  /** Offer what the rows can be grouped by, and the columns. */
  private _offer(params: ReadonlyMap<string, boolean>, chosen: Chosen['columns'], group: GroupBy): void {
    const groups = ['', 'tag', 'state', 'notebook', ...[...params.keys()].map(name => `param:${name}`)];
    if (
      !this._changed(groups.join('\n'), this._columns.map(({ name }) => name).join('\n'), this._offeredColumns.length)
    ) {
      return;
    }
    this._table.forget();
    this._widths = [];
    this._by.replaceChildren(...groups.map(value => h('option', { value }, value.replace('param:', '') || 'nothing')));
    this._by.value = group;
    const focused = this._columnList.contains(document.activeElement) ? document.activeElement?.id : '';
    this._columnList.replaceChildren(
      ...this._offeredColumns
        .filter(({ name }) => name !== 'name')
        .map(({ name, head, usual }) => {
          const box = h('input', { type: 'checkbox', id: `dl-column ${name}`, checked: chosen[name] ?? usual });
          box.addEventListener('change', () => {
            this._choose({ columns: { ...this._chosen.columns, [name]: box.checked } });
          });
          return h('label', {}, box, name === 'number' ? 'number' : head);
        })
    );
    if (focused) {
      document.getElementById(focused)?.focus();
    }
  }

  private _closeColumns(event: Event): void {
    if (event instanceof KeyboardEvent && event.key === 'Escape') {
      this._columnMenu.open = false;
      this._columnMenu.querySelector('summary')?.focus();
    }
  }

  private _choose(change: Partial<Chosen>): void {
    this._chosen = { ...this._chosen, ...change };
    this._memory.write(this._chosen);
    this._table.root.scrollTop = 0;
    this._draw();
  }

  private _sortBy(name: string): void {
    const { sort, falls } = this._chosen;
    const first = this._offeredColumns.find(each => each.name === name)?.falls ?? false;
    this._choose({ sort: name, falls: name === sort ? !falls : first });
  }

  private _row(number: number): RowView<ExperimentRow> {
    const tick = h('input', { type: 'checkbox', 'aria-label': `Choose #${number}` });
    tick.addEventListener('change', () => this._tick([number], tick.checked));
    const open = h('button', { type: 'button', class: 'dl-pick', onclick: () => this._options.open([number]) });
    const chip = h('span', { class: 'dl-chip' });
    const cells = this._columns.map(({ name, numeric }) => {
      const look = { class: numeric ? 'dl-numeric' : '' };
      return name === 'name' ? h('th', { scope: 'row' }, open) : name === 'state' ? h('td', look, chip) : h('td', look);
    });
    const root = h('tr', {}, h('td', {}, tick), ...cells);
    const update = (row: ExperimentRow): void => {
      const chosen = this._ticked.has(number);
      tick.checked = chosen;
      root.classList.toggle('dl-chosen', chosen);
      this._columns.forEach(({ name, cell }, index) => {
        const place = name === 'name' ? open : name === 'state' ? chip : cells[index];
        const text = cell(row);
        if (place) {
          setText(place, text || (name === 'name' ? `#${number}` : ''));
          setAttribute(place, 'title', name.startsWith('best ') && text ? row.result : text);
        }
      });
      setAttribute(chip, 'data-state', row.state);
      setAttribute(open, 'aria-label', `#${number} ${row.name}`.trim());
    };
    return { root, update };
  }

  // Chosen experiments

  private _tickAll(): void {
    this._tick(
      this._shown.map(row => row.number),
      this._all.checked
    );
  }

  private _tick(numbers: readonly number[], chosen: boolean): void {
    numbers.forEach(number => (chosen ? this._ticked.add(number) : this._ticked.delete(number)));
    this._frame.request();
  }

  private _chosenDrawn(): void {
    const known = new Set(this._rows.list.map(row => row.number));
    [...this._ticked].filter(number => !known.has(number)).forEach(number => this._ticked.delete(number));
    const count = this._ticked.size;
    const shown = this._shown.filter(row => this._ticked.has(row.number)).length;
    this._all.checked = count > 0 && shown === this._shown.length;
    this._all.indeterminate = shown > 0 && shown < this._shown.length;
    show(this._actions, count > 0);
    const most = count > MOST_COMPARED ? `; up to ${MOST_COMPARED} can be compared` : '';
    const hidden = shown < count ? `, ${many(count - shown)} of them not shown` : '';
    setText(this._chosenText, count ? `${many(count)} chosen${hidden}${most}` : '');
    this._compare.disabled = count < 2 || count > MOST_COMPARED;
  }

  private async _tag(): Promise<void> {
    const numbers = [...this._ticked];
    const { value } = await InputDialog.getText({
      title: `Tag ${counted(numbers.length)}`,
      label: 'Tags to add; one with - before it is removed',
      placeholder: 'paper -debug',
      okLabel: 'Tag'
    });
    const [added, removed]: [string[], string[]] = [[], []];
    for (const tag of tagsIn(value ?? '')) {
      (tag.startsWith('-') ? removed : added).push(tag.replace(/^-/, ''));
    }
    if (added.length + removed.length > 0) {
      await this._each(numbers, 'label', { add_tags: added, remove_tags: removed });
    }
  }

  private async _delete(): Promise<void> {
    const chosen = this._rows.list.filter(row => this._ticked.has(row.number));
    const numbers = chosen.filter(row => ENDED.includes(row.state)).map(row => row.number);
    const left = chosen.length - numbers.length;
    if (numbers.length === 0) {
      throw new Error('None of these has ended: stop them first.');
    }
    const stay = left ? `${counted(left)} that ${left === 1 ? 'has' : 'have'} not ended will stay. ` : '';
    const text = stay + DELETE.text;
    const what = counted(numbers.length);
    if (await isSure(`Delete ${what}?`, { text, keep: 'Keep', act: 'Delete' })) {
      await this._each(numbers, 'delete');
      this._tick(numbers, false);
      const undo = (): void => void told(() => this._each(numbers, 'undelete'));
      sayDeleted(`${what} ${numbers.length === 1 ? 'is' : 'are'}`, undo);
    }
  }

  /** Act on experiments, a few at a time. */
  private async _each(numbers: readonly number[], verb: Act, asked?: ActionBody): Promise<void> {
    const left = [...numbers];
    const next = async (): Promise<void> => {
      for (let number = left.shift(); number !== undefined; number = left.shift()) {
        await this._options.act(number, verb, asked);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, next));
  }
}

function many(count: number): string {
  return count.toLocaleString('en');
}

function counted(count: number): string {
  return `${many(count)} experiment${count === 1 ? '' : 's'}`;
}
