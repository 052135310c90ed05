/** Legend above a plot: a colour, a name and a value for each line, and a button that hides it. */

import { h, setAttribute, setChildren, setText, show } from './dom';
import type { Line } from './lines';
import { cssColour } from './theme';

const MANY = 8; // entries; of more only some rows are seen, and the others by scrolling

export class Keys {
  readonly root = h('span', { class: 'dl-keys' });
  private readonly _broken = h('span', { class: 'dl-key dl-broken' }, '× not finite');
  private readonly _keys: Key[] = [];

  /** `toggled` is called with the label of a line that is to be hidden, or shown again. */
  constructor(private readonly _toggled: (label: string) => void) {
    this.root.append(this._broken);
  }

  /** Show one entry per line; those of `hidden` lines are dimmed. */
  update(lines: readonly Line[], hidden: ReadonlySet<string>): void {
    const keys = lines.map((line, index) => {
      const key = (this._keys[index] ??= new Key(this._toggled));
      key.update(line, hidden.has(line.label), lines.length > 1);
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

  /** Set the values of the entries, in order of the lines: the newest ones. */
  say(values: readonly string[]): void {
    values.forEach((value, index) => this._keys[index]?.say(value));
  }

  /** Show other values, those at the pointer, in the place of the newest ones; null shows these again. */
  point(values: readonly string[] | null): void {
    this._keys.forEach((key, index) => key.point(values?.[index] ?? null));
  }
}

class Key {
  private readonly _swatch = h('span', { class: 'dl-swatch' });
  private readonly _label = h('span', { class: 'dl-key-label' });
  private readonly _newest = h('span', { class: 'dl-newest' });
  private readonly _pointed = h('span', { class: 'dl-pointed', 'aria-hidden': 'true', hidden: true });
  readonly root: HTMLButtonElement;

  constructor(toggled: (label: string) => void) {
    const value = h('span', { class: 'dl-value' }, this._newest, this._pointed);
    const press = (): void => toggled(this._label.textContent);
    this.root = h('button', { type: 'button', class: 'dl-key', onclick: press }, this._swatch, this._label, ' ', value);
  }

  update(line: Line, hidden: boolean, several: boolean): void {
    setAttribute(this.root, 'data-colour', line.colour);
    this._swatch.style.color = cssColour(line.colour);
    setAttribute(this.root, 'aria-pressed', String(!hidden));
    this.root.disabled = !several;
    this._swatch.classList.toggle('dl-dashed', line.dashed);
    setText(this._label, line.label);
    setAttribute(this.root, 'title', several ? `${line.label}: click to ${hidden ? 'show' : 'hide'} it` : line.label);
  }

  say(value: string): void {
    setText(this._newest, value);
  }

  /** Lay another value over the newest one, which keeps its place, so that nothing moves. */
  point(value: string | null): void {
    this._newest.classList.toggle('dl-covered', value !== null);
    setText(this._pointed, value ?? '');
    show(this._pointed, value !== null);
  }
}
