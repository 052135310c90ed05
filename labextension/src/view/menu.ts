/** Button that opens a menu, operated by pointer or keyboard. */

import { h, setAttribute } from './dom';
import { iconButton } from './icons';

const ITEM_PX = 30; // about the height of an item, to decide where there is room
const GAP_PX = 4;

export class Menu {
  readonly opener: HTMLButtonElement;
  readonly root: HTMLElement;
  private readonly _list: HTMLElement;

  /** Make a menu of these buttons; those that are hidden are not offered. */
  constructor(
    name: string,
    private readonly _items: readonly HTMLButtonElement[]
  ) {
    for (const item of _items) {
      setAttribute(item, 'role', 'menuitem');
      item.tabIndex = -1;
    }
    this._list = h('div', { class: 'dl-menu', role: 'menu', 'aria-label': name, popover: 'auto' }, ..._items);
    this.opener = iconButton(name, 'more', () => undefined);
    setAttribute(this.opener, 'aria-haspopup', 'menu');
    setAttribute(this.opener, 'aria-expanded', 'false');
    this.opener.popoverTargetElement = this._list; // the browser opens it, and closes it by Escape or a click elsewhere
    this._list.addEventListener('beforetoggle', event => this._toggles(event));
    this._list.addEventListener('toggle', event => this._toggled(event));
    this._list.addEventListener('keydown', event => this._key(event));
    // Before the item's own listener, which may give the focus to what it opens.
    this._list.addEventListener('click', () => this._close(), { capture: true });
    this.root = h('span', { class: 'dl-menu-place' }, this.opener, this._list);
  }

  private get _offered(): HTMLButtonElement[] {
    return this._items.filter(item => !item.hidden && !item.disabled);
  }

  private _close(): void {
    this._list.hidePopover();
    this.opener.focus();
  }

  private _toggles(event: ToggleEvent): void {
    if (event.newState === 'open') {
      const { bottom, top, right } = this.opener.getBoundingClientRect();
      const below = bottom + this._offered.length * ITEM_PX < window.innerHeight;
      const { style } = this._list;
      style.right = `${Math.max(GAP_PX, document.documentElement.clientWidth - right)}px`;
      style.top = below ? `${bottom + GAP_PX}px` : 'auto';
      style.bottom = below ? 'auto' : `${window.innerHeight - top + GAP_PX}px`;
    }
  }

  private _toggled(event: ToggleEvent): void {
    const open = event.newState === 'open';
    setAttribute(this.opener, 'aria-expanded', String(open));
    if (open) {
      this._offered[0]?.focus();
    }
  }

  private _key(event: KeyboardEvent): void {
    const offered = this._offered;
    const next = itemByKey(event.key, offered.indexOf(event.target as HTMLButtonElement), offered.length);
    if (next !== null) {
      event.preventDefault();
      offered[next]?.focus();
    } else if (event.key === 'Tab') {
      event.preventDefault();
      this._close();
    }
  }
}

/** Return the index of the item that a key leads to, the first after the last; null if the key has no meaning. */
export function itemByKey(key: string, at: number, count: number): number | null {
  switch (key) {
    case 'ArrowDown':
      return (at + 1) % count;
    case 'ArrowUp':
      return (at - 1 + count) % count;
    case 'Home':
      return 0;
    case 'End':
      return count - 1;
    default:
      return null;
  }
}
