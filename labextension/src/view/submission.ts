/** Sentences about the submission, and hyperparameters, collapsed if they are long. */

import { paramsText } from '../model/text';
import type { Look } from '../service/watch';
import { changes, h, setLines, setText, show } from './dom';

const LONG = 320; // characters beyond which hyperparameters are collapsed

export class About {
  private readonly _sentences = h('div');
  private readonly _params = h('p', { class: 'dl-code' });
  private readonly _text = h('div', { class: 'dl-about-text' }, this._sentences, this._params);
  private readonly _fold = h('details', { class: 'dl-fold' }, h('summary', {}, 'code and hyperparameters'));
  private readonly _changed = changes();
  readonly root = h('div', { class: 'dl-about' }, this._text, this._fold);

  update(look: Look): void {
    const params = look.overview?.experiment.params ?? null;
    if (!this._changed(look.captured, params)) {
      return;
    }
    const told = params ? paramsText(params) : '';
    setLines(this._sentences, look.captured, () => h('p'));
    setText(this._params, told);
    show(this._params, told !== '');
    this._place([...look.captured, told].join(''));
  }

  private _place(text: string): void {
    const home = text.length > LONG ? this._fold : this.root;
    if (this._text.parentElement !== home) {
      home.append(this._text);
    }
    show(this._fold, home === this._fold);
    show(this.root, text !== '');
  }
}
