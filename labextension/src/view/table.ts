/** Numbers of a plot in a collapsible table, created when it is opened, and updated while it is open. */

import { tableOf } from './describe';
import { h, setLines, setText, show } from './dom';
import type { Picture } from './plotlook';

const EVERY_MS = 1000; // minimum time between updates

export class Table {
  private readonly _head = h('tr');
  private readonly _body = h('tbody');
  private readonly _left = h('p', { class: 'dl-dim', hidden: true });
  private readonly _fold: HTMLDetailsElement;
  private _picture: Picture | null = null;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _stale = true;

  constructor(metric: string) {
    const table = h('table', { class: 'dl-table', 'aria-label': metric }, h('thead', {}, this._head), this._body);
    this._fold = h(
      'details',
      { class: 'dl-fold', ontoggle: () => this._fill() },
      h('summary', {}, 'as a table'),
      this._left,
      h('div', { class: 'dl-scroll', tabindex: 0, role: 'group', 'aria-label': `${metric} as a table` }, table)
    );
  }

  get root(): HTMLElement {
    return this._fold;
  }

  update(picture: Picture): void {
    this._picture = picture;
    this._stale = true;
    if (this._fold.open) {
      this._timer ??= setTimeout(() => {
        this._timer = undefined;
        this._fill();
      }, EVERY_MS);
    }
  }

  dispose(): void {
    clearTimeout(this._timer);
  }

  private _fill(): void {
    if (!this._picture || !this._fold.open || !this._stale) {
      return;
    }
    this._stale = false;
    const { head, rows, left } = tableOf(this._picture.lines, this._picture.axis);
    setText(this._left, `${rows.length} of ${rows.length + left} points`);
    show(this._left, left > 0);
    setLines(this._head, head, () => h('th', { scope: 'col' }));
    while (this._body.children.length > rows.length) {
      this._body.lastElementChild?.remove();
    }
    rows.forEach((row, index) => {
      setLines(this._body.children[index] ?? this._body.appendChild(h('tr')), row, () => h('td'));
    });
  }
}
