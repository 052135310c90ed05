/** Button that shows and hides a section of a view. */

import { button, setAttribute, show } from './dom';

export class Disclosure {
  readonly opener: HTMLButtonElement;

  /** Create the button of a hidden section; `opened` is called each time that it has shown the section. */
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
    this._expand(false);
  }

  /** Show the button, or hide it together with the section. */
  offer(there: boolean): void {
    show(this.opener, there);
    if (!there) {
      this._expand(false);
    }
  }

  private _expand(open: boolean): void {
    show(this._section, open);
    setAttribute(this.opener, 'aria-expanded', String(open));
  }
}
