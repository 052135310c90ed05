/** Legend above a plot: a colour, a name and a value for each line. */

import { h, setAttribute, setChildren, setText, show } from './dom';
import type { Line } from './lines';

const MANY = 8; // entries; of more only some rows are seen, and the others by scrolling

export class Keys {
  readonly root = h('span', { class: 'dl-keys' });
  private readonly _broken = h('span', { class: 'dl-key dl-broken' }, '× not finite');
  private readonly _keys: Key[] = [];

  constructor() {
    this.root.append(this._broken);
  }

  /** Show one entry per line. */
  update(lines: readonly Line[]): void {
    const keys = lines.map((line, index) => {
      const key = (this._keys[index] ??= new Key());
      key.update(line);
      return key.root;
    });
    show(
      this._broken,
      lines.some(line => line.broken.length > 0)
    );
    setChildren(this.root, [...keys, this._broken]);
    const many = lines.length > MANY;
    this.root.classList.toggle('dl-many-keys', many);
    if (many) {
      this.root.tabIndex = 0; // the keyboard scrolls what has the focus
    } else {
      this.root.removeAttribute('tabindex');
    }
  }

  /** Set the values of the entries, in order of the lines. */
  say(values: readonly string[]): void {
    values.forEach((value, index) => this._keys[index]?.say(value));
  }
}

class Key {
  private readonly _swatch = h('span', { class: 'dl-swatch' });
  private readonly _label = h('span', { class: 'dl-key-label' });
  private readonly _value = h('span', { class: 'dl-value' });
  readonly root = h('span', { class: 'dl-key' }, this._swatch, this._label, ' ', this._value);

  update(line: Line): void {
    setAttribute(this.root, 'data-colour', line.colour);
    this._swatch.classList.toggle('dl-dashed', line.dashed);
    setText(this._label, line.label);
    setAttribute(this._label, 'title', line.label);
  }

  say(value: string): void {
    setText(this._value, value);
  }
}
