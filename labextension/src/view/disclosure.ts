/** Button that shows and hides a section of a view, which has a heading. */

import { button, h, setAttribute, show } from './dom';
import { iconButton } from './icons';

export class Disclosure {
  readonly opener: HTMLButtonElement;
  private _home: HTMLElement;
  private _others: readonly Disclosure[] = [];

  /**
   * Create the button of a hidden section, whose heading is its label; `opened` is called each time that it has shown
   * the section.
   */
  constructor(
    name: string,
    private readonly _section: HTMLElement,
    opened: () => void
  ) {
    this.opener = button(name, () => {
      this._expand(this._section.hidden);
      if (!this._section.hidden) {
        opened();
      }
    });
    this._home = this.opener;
    const label = this._section.getAttribute('aria-label') ?? name;
    const heading = h('span', { role: 'heading', 'aria-level': 3, class: 'dl-section-title' }, label);
    const close = iconButton(`Close ${label}`, 'close', () => this.close());
    this._section.insertBefore(
      h('div', { class: 'dl-section-head' }, heading, close),
      this._section.children[0] ?? null
    );
    this._expand(false);
  }

  /** Let only one of several sections be open at a time; `home` has the focus after one was closed. */
  static join(disclosures: readonly Disclosure[], home: HTMLElement): void {
    for (const each of disclosures) {
      each._home = home;
      each._others = disclosures.filter(other => other !== each);
    }
  }

  /** Show the button, or hide it together with the section. */
  offer(there: boolean): void {
    show(this.opener, there);
    if (!there) {
      this._expand(false);
    }
  }

  /** Hide the section, and return the focus. */
  close(): void {
    this._expand(false);
    this._home.focus();
  }

  private _expand(open: boolean): void {
    show(this._section, open);
    setAttribute(this.opener, 'aria-expanded', String(open));
    if (open) {
      this._others.forEach(other => other._expand(false));
    }
  }
}
