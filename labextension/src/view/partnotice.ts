/** Note in the place of a part whose code is not loaded: that it is loading, or failed, with a button that retries. */

import type { Part } from '../part';
import { button, h, setText, show } from './dom';

const LOADING = 'Loading\u2026';
const FAILED =
  'This part of Daylight could not be loaded: is the Jupyter server there? ' +
  'If Daylight was updated, reload the page.';

export class PartNotice {
  private readonly _text = h('p', { role: 'status' });
  private readonly _retry: HTMLButtonElement;
  readonly root: HTMLElement;

  constructor(private readonly _part: Pick<Part<unknown>, 'code' | 'wait' | 'load'>) {
    this._retry = button('Try again', () => void this._part.load());
    this.root = h('div', { class: 'dl-wait', hidden: true }, this._text, this._retry);
  }

  /** Whether there is something to read. */
  get shown(): boolean {
    return this._part.code === null && this._part.wait !== 'soon';
  }

  update(): void {
    const failed = this._part.wait === 'failed';
    show(this.root, this.shown);
    setText(this._text, !this.shown ? '' : failed ? FAILED : LOADING);
    show(this._retry, failed);
  }
}
