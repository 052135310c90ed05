/** Table with columns to sort by and rows in groups; of many rows only those in sight are elements. */

import { changes, h, setAttribute, setChildren } from './dom';
import { Frame } from './frame';
import { placeAfter } from './arrowkeys';

const ARROWS = { ascending: ' \u2191', descending: ' \u2193' };
const MANY = 400; // rows; of more only those in sight are elements
const BEYOND = 5; // rows above and below those in sight

export type Direction = 'ascending' | 'descending';

export interface Column<Row> {
  readonly name: string; // sort key
  readonly head: string;
  readonly numeric: boolean; // numbers are aligned to the right
  readonly cell: (row: Row) => string;
}

/** Rows below a heading; a title '' has none. */
export interface Section<Row> {
  readonly title: string;
  readonly rows: readonly Row[];
}

export interface RowView<Row> {
  readonly root: HTMLTableRowElement;
  update(row: Row): void;
}

/** What a table is made of, besides its columns. */
export interface TableParts<Row> {
  readonly name: string;
  readonly look: string; // class
  readonly lead?: HTMLElement; // heads before and after those of the columns
  readonly tail?: HTMLElement;
  readonly key: (row: Row) => number | string;
  readonly make: (row: Row) => RowView<Row>;
  readonly sorted: (column: string) => void;
}

interface Entry<Row> {
  readonly key: string;
  readonly row: Row | null; // null: heading
  readonly title: string;
}

export class SortedTable<Row> {
  private readonly _head = h('tr');
  private readonly _body = h('tbody', {
    onkeydown: event => this._move(event),
    onfocusin: event => this._focus(event)
  });
  private readonly _widths = h('colgroup');
  private readonly _table: HTMLTableElement;
  private readonly _above = h('tr', { class: 'dl-unseen-rows', 'aria-hidden': 'true' });
  private readonly _below = h('tr', { class: 'dl-unseen-rows', 'aria-hidden': 'true' });
  private readonly _changed = changes();
  private readonly _frame = new Frame(() => this._draw(false));
  private _views = new Map<string, RowView<Row>>();
  private _entries: readonly Entry<Row>[] = [];
  private _columns = 0;
  private _height = 24; // of a row, in pixels
  private _current = ''; // key of the row that Tab reaches
  readonly root: HTMLElement;

  constructor(private readonly _parts: TableParts<Row>) {
    const { name, look } = _parts;
    this._table = h(
      'table',
      { class: `dl-table dl-sorted ${look}`, 'aria-label': name },
      this._widths,
      h('thead', {}, this._head),
      this._body
    );
    const scrolled = (): void => this._frame.request();
    this.root = h(
      'div',
      { class: `dl-wide ${look}-box`, tabindex: 0, role: 'group', 'aria-label': name, onscroll: scrolled },
      this._table
    );
  }

  dispose(): void {
    this._frame.dispose();
  }

  /** Make all rows anew at the next update, as they have other cells. */
  forget(): void {
    this._views.clear();
    this._body.replaceChildren();
  }

  /** Show rows; `widths`, in characters, keep the columns of many rows where they are while it is scrolled. */
  update(
    columns: readonly Column<Row>[],
    direction: (column: string) => Direction | null,
    sections: readonly Section<Row>[],
    widths: readonly number[] = []
  ): void {
    this._heads(columns, direction);
    this._columns = this._head.children.length;
    if (this._widths.children.length !== widths.length) {
      this._widths.replaceChildren(...widths.map(() => h('col')));
    }
    widths.forEach((width, index) => setAttribute(this._widths.children[index] ?? this._widths, 'style', css(width)));
    this._table.style.width = widths.length ? `max(100%, ${widths.map(calc).join(' + ')})` : '';
    this._entries = sections.flatMap(({ title, rows }) => [
      ...(title ? [{ key: title, row: null, title }] : []),
      ...rows.map(row => ({ key: `${title} ${this._parts.key(row)}`, row, title }))
    ]);
    this._draw(true);
  }

  private _heads(columns: readonly Column<Row>[], direction: (column: string) => Direction | null): void {
    const texts = columns.map(({ name, head, numeric }) => `${name} ${head} ${numeric} ${direction(name) ?? ''}`);
    if (!this._changed(texts.join('\n'))) {
      return;
    }
    const { lead, tail, sorted } = this._parts;
    const heads = columns.map(({ name, head, numeric }) => {
      const towards = direction(name);
      const press = h('button', { type: 'button', class: 'dl-sort', onclick: () => sorted(name) }, head);
      press.append(h('span', { 'aria-hidden': 'true' }, towards ? ARROWS[towards] : ''));
      return h('th', { scope: 'col', class: numeric ? 'dl-numeric' : '', 'aria-sort': towards ?? 'none' }, press);
    });
    const all = [...(lead ? [lead] : []), ...heads, ...(tail ? [tail] : [])];
    const focused = [...this._head.children].findIndex(each => each.contains(document.activeElement));
    setChildren(this._head, all);
    if (focused >= 0) {
      all[focused]?.querySelector('button')?.focus(); // return the focus, for keyboard users
    }
  }

  /** Draw the rows in sight; those that are drawn already are updated if they are `stale`. */
  private _draw(stale: boolean): void {
    const entries = this._entries;
    const many = entries.length > MANY;
    const [first, last] = many ? this._inSight() : [0, entries.length];
    const before = this._views;
    const focused = this._body.contains(document.activeElement);
    const shown = entries.slice(first, last);
    this._views = new Map();
    const nodes = shown.map((entry, index) => {
      const known = before.get(entry.key);
      const view = known ?? (entry.row === null ? this._heading(entry.title) : this._parts.make(entry.row));
      this._views.set(entry.key, view);
      if (entry.row !== null && (stale || !known)) {
        view.update(entry.row);
      }
      if (many) {
        setAttribute(view.root, 'aria-rowindex', String(first + index + 2));
      }
      return view.root;
    });
    this._above.style.height = `${first * this._height}px`;
    this._below.style.height = `${(entries.length - last) * this._height}px`;
    setAttribute(this._table, 'aria-rowcount', String(entries.length + 1));
    setChildren(this._body, many ? [this._above, ...nodes, this._below] : nodes);
    this._stops();
    if (focused && !this._body.contains(document.activeElement)) {
      this.root.focus({ preventScroll: true }); // the focused row was scrolled out of sight
    }
    const height = many && stale ? (nodes.at(-1)?.offsetHeight ?? 0) : 0;
    if (height > 0 && height !== this._height) {
      this._height = height;
      this._frame.request();
    }
  }

  private _inSight(): readonly [first: number, last: number] {
    const { scrollTop, clientHeight } = this.root;
    const first = Math.max(0, Math.floor(scrollTop / this._height) - BEYOND);
    return [first, Math.min(this._entries.length, first + Math.ceil(clientHeight / this._height) + 2 * BEYOND)];
  }

  private _heading(title: string): RowView<Row> {
    const cell = h('th', { scope: 'rowgroup', colspan: this._columns }, title);
    return { root: h('tr', { class: 'dl-row-group' }, cell), update: () => undefined };
  }

  /** Let Tab reach one row, from which arrow keys lead to the others. */
  private _stops(): void {
    const current = this._views.has(this._current) ? this._current : this._entries.find(({ row }) => row !== null)?.key;
    let found = false;
    for (const [key, { root }] of this._views) {
      const controls = controlsOf(root);
      const stops: boolean = key === current || (!found && !this._views.has(current ?? '') && controls.length > 0);
      found ||= stops;
      controls.forEach(control => setAttribute(control, 'tabindex', stops ? '0' : '-1'));
    }
  }

  private _focus(event: Event): void {
    const key = this._keyOf(event.target);
    if (key !== null && key !== this._current) {
      this._current = key;
      this._stops();
    }
  }

  private _keyOf(target: EventTarget | null): string | null {
    for (const [key, { root }] of this._views) {
      if (target instanceof Node && root.contains(target)) {
        return key;
      }
    }
    return null;
  }

  /** Move the focus to the same control of another row. */
  private _move(event: Event): void {
    const { _entries: entries, _height: height } = this;
    const key = this._keyOf(event.target);
    const place = entries.findIndex(each => each.key === key);
    if (!(event instanceof KeyboardEvent) || place < 0 || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const page = Math.max(1, Math.floor(this.root.clientHeight / height) - 2);
    let next = placeAfter(event.key, place, entries.length, page);
    if (next === null) {
      return;
    }
    event.preventDefault();
    if (entries[next]?.row === null) {
      next += next < place && next > 0 ? -1 : 1; // past a heading
    }
    const target = entries[next];
    const nth = controlsOf(this._views.get(key ?? '')?.root).findIndex(each => each === document.activeElement);
    if (!target) {
      return;
    }
    if (!this._views.has(target.key)) {
      this.root.scrollTop = Math.max(0, (next - page / 2) * height);
      this._draw(false);
    }
    const root = this._views.get(target.key)?.root;
    controlsOf(root)[Math.max(0, nth)]?.focus({ preventScroll: true });
    root?.scrollIntoView({ block: 'nearest' });
  }
}

function controlsOf(row: HTMLElement | undefined): HTMLElement[] {
  return [...(row?.querySelectorAll<HTMLElement>('button:not([hidden]), input') ?? [])];
}

function calc(width: number): string {
  return `min(${width}ch, 40cqw) + 14px`;
}

function css(width: number): string {
  return `width: calc(${calc(width)})`;
}
