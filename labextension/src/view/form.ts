/** Forms, and requests that users start: one at a time, and a failed one says why. */

import { messageOf } from '../service/source';
import { type Child, h, setText } from './dom';

/** Create a form with a name and a button that submits it. */
export function form(name: string, submitted: () => void, ...children: Child[]): HTMLFormElement {
  const onsubmit = (event: Event): void => {
    event.preventDefault();
    submitted();
  };
  return h('form', { class: 'dl-more', 'aria-label': name, onsubmit }, ...children);
}

export function submit(name: string): HTMLButtonElement {
  return h('button', { type: 'submit', class: 'dl-button' }, name);
}

/** What a user has started, with its result and its error as text. */
export class Attempt {
  readonly said = h('span', { class: 'dl-dim', role: 'status' });
  readonly error = h('p', { class: 'dl-act-error', role: 'alert' });
  private _busy = false;

  /** Act unless an earlier act has not ended, and return whether that succeeds; meanwhile the controls are disabled. */
  async run(act: () => Promise<unknown>, ...controls: readonly HTMLButtonElement[]): Promise<boolean> {
    if (this._busy) {
      return false;
    }
    const disable = (busy: boolean): void => {
      this._busy = busy;
      controls.forEach(control => (control.disabled = busy));
    };
    disable(true);
    this.clear();
    try {
      await act();
    } catch (error) {
      setText(this.error, messageOf(error));
    }
    disable(false);
    return this.error.textContent === '';
  }

  clear(): void {
    setText(this.said, '');
    setText(this.error, '');
  }
}
