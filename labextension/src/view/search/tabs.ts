/** Tabs, of which only the visible one is drawn. */

import { h, setAttribute, show } from '../dom';
import type { TabView } from './tabview';

export interface Tab {
  readonly root: HTMLElement;
  draw(seen: TabView): void;
  dispose(): void;
}

export class Tabs {
  readonly root: HTMLElement;
  private readonly _list = h('div', { role: 'tablist', class: 'dl-tabs', 'aria-label': 'Pictures of the search' });
  private _shown: string;
  private _seen: TabView | null = null;

  /** `changed` is called when another tab is selected. */
  constructor(
    private readonly _tabs: readonly (readonly [string, Tab])[],
    private readonly _changed: () => void
  ) {
    this._shown = _tabs[0]?.[0] ?? '';
    for (const [name, tab] of _tabs) {
      const press = h(
        'button',
        { type: 'button', role: 'tab', class: 'dl-tab', onclick: () => this._show(name) },
        name
      );
      press.addEventListener('keydown', event => this._key(event));
      this._list.append(press);
      setAttribute(tab.root, 'role', 'tabpanel');
      setAttribute(tab.root, 'aria-label', name);
    }
    this.root = h('div', {}, this._list, ..._tabs.map(([, tab]) => tab.root));
    this._mark();
  }

  get shown(): string {
    return this._shown;
  }

  draw(seen: TabView): void {
    this._seen = seen;
    this._tabs.find(([name]) => name === this._shown)?.[1].draw(seen);
  }

  dispose(): void {
    this._tabs.forEach(([, tab]) => tab.dispose());
  }

  private _show(name: string): void {
    this._shown = name;
    this._mark();
    if (this._seen) {
      this.draw(this._seen);
    }
    this._changed();
  }

  private _mark(): void {
    this._tabs.forEach(([name, tab], index) => {
      const press = this._list.children[index];
      const own = name === this._shown;
      show(tab.root, own);
      if (press instanceof HTMLElement) {
        setAttribute(press, 'aria-selected', String(own));
        press.tabIndex = own ? 0 : -1;
      }
    });
  }

  private _key(event: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step !== undefined) {
      const at = this._tabs.findIndex(([name]) => name === this._shown);
      const next = (at + step + this._tabs.length) % this._tabs.length;
      this._show(this._tabs[next]?.[0] ?? this._shown);
      const press = this._list.children[next];
      if (press instanceof HTMLElement) {
        press.focus();
      }
    }
  }
}
