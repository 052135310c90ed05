/** Confirmation in place ("Stop #12 for good?"); Escape and the focused button cancel. */

import { button, h, setAttribute, setText } from './dom';

/** Texts below the title and on the two buttons. */
export interface QuestionText {
  readonly text: string;
  readonly keep: string;
  readonly act: string;
}

export const STOP: QuestionText = {
  text: 'Its checkpoints and curves stay; it cannot be resumed.',
  keep: 'Keep it running',
  act: 'Stop it'
};

export const DELETE: QuestionText = {
  text: 'For a day this can be undone; then checkpoints, logs and curves are gone.',
  keep: 'Keep it',
  act: 'Delete it'
};

export class Question {
  readonly root: HTMLElement;
  private readonly _title = h('strong');
  private readonly _keep: HTMLButtonElement;
  private _opener: HTMLElement | null = null;
  private _act: () => void = () => undefined;

  constructor(words: QuestionText) {
    this._keep = button(words.keep, () => this._answer(false));
    this.root = h(
      'div',
      { class: 'dl-question', role: 'alertdialog', hidden: true, onkeydown: event => this._key(event) },
      h('p', {}, this._title, ' ', words.text),
      h(
        'div',
        { class: 'dl-actions' },
        this._keep,
        button(words.act, () => this._answer(true), 'dl-danger')
      )
    );
  }

  /** Show the confirmation; `act` is called if the user confirms, and `opener` gets the focus back. */
  open(title: string, opener: HTMLElement, act: () => void): void {
    setText(this._title, title);
    setAttribute(this.root, 'aria-label', title);
    this._opener = opener;
    this._act = act;
    this.root.hidden = false;
    this._keep.focus();
  }

  close(): void {
    this.root.hidden = true;
  }

  private _answer(yes: boolean): void {
    this.close();
    this._opener?.focus();
    if (yes) {
      this._act();
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
