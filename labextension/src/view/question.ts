/** "Stop #12 for good?": asked in place; Escape and the button that has the focus keep it running. */

import { button, h, setAttribute, setText } from './dom';

export class Question {
  readonly root: HTMLElement;
  private readonly _title = h('strong');
  private readonly _keep: HTMLButtonElement;

  /** `opener` gets the focus back. */
  constructor(
    private readonly _stop: () => void,
    private readonly _opener: HTMLElement
  ) {
    this._keep = button('Keep it running', () => this._answer(false));
    this.root = h(
      'div',
      { class: 'dl-question', role: 'alertdialog', hidden: true, onkeydown: event => this._key(event) },
      h('p', {}, this._title, ' ', 'Its checkpoints and curves stay; it cannot be resumed.'),
      h(
        'div',
        { class: 'dl-actions' },
        this._keep,
        button('Stop it', () => this._answer(true), 'dl-danger')
      )
    );
  }

  set number(number: number) {
    const title = `Stop #${number} for good?`;
    setText(this._title, title);
    setAttribute(this.root, 'aria-label', title);
  }

  open(): void {
    this.root.hidden = false;
    this._keep.focus();
  }

  close(): void {
    this.root.hidden = true;
  }

  private _answer(stop: boolean): void {
    this.close();
    this._opener.focus();
    if (stop) {
      this._stop();
    }
  }

  private _key(event: Event): void {
    if (event instanceof KeyboardEvent && event.key === 'Escape') {
      event.stopPropagation();
      event.preventDefault();
      this._answer(false);
    }
  }
}
