/** Table of hyperparameters and results, below compared curves. */

import { h, setAttribute, setChildren, setLines, setText, show, wide } from './dom';
import type { Rows } from './rows';

export class RowTable {
  private readonly _only: HTMLInputElement;
  private readonly _head = h('tr');
  private readonly _table = h(
    'table',
    { class: 'dl-table dl-rows', 'aria-label': 'Hyperparameters and results' },
    h('thead', {}, this._head)
  );
  private readonly _bodies = new Map<string, Body>();
  private readonly _none = h('p', { class: 'dl-dim' }, 'no differences');
  private _rows: readonly Rows[] = [];
  readonly root: HTMLElement;

  constructor() {
    this._only = h('input', { type: 'checkbox', onchange: () => this._show() });
    this.root = h(
      'section',
      { class: 'dl-rows-part' },
      h('div', { class: 'dl-toolbar' }, h('label', {}, this._only, 'only differences')),
      wide('Hyperparameters and results', this._table),
      this._none
    );
  }

  /** Draw the rows; `heads` are the names of the columns. */
  update(heads: readonly string[], rows: readonly Rows[]): void {
    this._rows = rows;
    setLines(this._head, ['experiment', ...heads], () => h('th', { scope: 'col' }));
    this._show();
  }

  private _show(): void {
    const only = this._only.checked;
    const shown = this._rows
      .map(({ title, rows }) => ({ title, rows: rows.filter(row => row.differs || !only) }))
      .filter(({ rows }) => rows.length > 0);
    const bodies = shown.map(part => this._body(part));
    setChildren(this._table, [...this._table.children].slice(0, 1).concat(bodies.map(body => body.root)));
    show(this._none, shown.length === 0);
  }

  private _body(part: Rows): Body {
    const body = this._bodies.get(part.title) ?? new Body(part.title);
    this._bodies.set(part.title, body);
    body.update(part);
    return body;
  }
}

class Body {
  private readonly _title: HTMLElement;
  private readonly _rows: HTMLElement[] = [];
  readonly root: HTMLElement;

  constructor(title: string) {
    this._title = h('tr', { class: 'dl-rows-title' }, h('th', { scope: 'rowgroup' }, title));
    this.root = h('tbody', {}, this._title);
  }

  update({ rows }: Rows): void {
    const nodes = rows.map((row, index) => {
      const node = (this._rows[index] ??= h('tr', {}, h('th', { scope: 'row' })));
      node.classList.toggle('dl-differs', row.differs);
      const [name, ...cells] = [...node.children];
      if (name) {
        setText(name, row.name);
      }
      row.values.forEach((value, column) => {
        const cell = cells[column] ?? node.appendChild(h('td'));
        setText(cell, value);
        cell.classList.toggle('dl-better', column === row.best);
      });
      cells.slice(row.values.length).forEach(cell => cell.remove());
      return node;
    });
    setAttribute(this._title.children[0] ?? this._title, 'colspan', String((rows[0]?.values.length ?? 0) + 1));
    setChildren(this.root, [this._title, ...nodes]);
  }
}
