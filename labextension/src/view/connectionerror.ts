/** Message about a connection error, with a button to retry. */

import type { Look, Watch } from '../service/watch';
import { button, h, setText, show } from './dom';

export class ConnectionNotice {
  private readonly _text = h('p', { class: 'dl-connection', role: 'status' });
  private readonly _retry: HTMLButtonElement;
  readonly root: HTMLElement;

  constructor(watch: Pick<Watch, 'retry'>) {
    this._retry = button('Try now', () => watch.retry());
    this.root = h('div', { class: 'dl-trouble' }, this._text, this._retry);
  }

  update(look: Look): void {
    setText(this._text, look.error ?? '');
    show(this._retry, look.error !== null && look.connection !== 'live');
    this.root.classList.toggle('dl-none', look.error === null);
  }
}
