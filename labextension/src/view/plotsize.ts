/** Full width and y range of one plot, chosen by the user and kept until the browser's tab is closed. */

import { h, setAttribute, show } from './dom';
import { iconButton } from './icons';

/** Ends of the y axis; null: as the values need it. */
export type Limits = readonly [low: number | null, high: number | null];

export class PlotSize {
  readonly button = iconButton('Full width', 'wide', () => this._set(!this._full));
  readonly range = h('span', { class: 'dl-range' });
  private readonly _ends: readonly HTMLInputElement[];
  private _full = false;

  /** `changed` is called when the plot must be drawn with other limits. */
  constructor(
    private readonly _root: HTMLElement,
    private readonly _key: string,
    private readonly _changed: () => void
  ) {
    this._ends = ['from', 'to'].map(end => {
      const label = `y axis ${end}`;
      return h('input', {
        type: 'number',
        step: 'any',
        placeholder: 'auto',
        'aria-label': label,
        onchange: () => this._set(this._full)
      });
    });
    this.range.append('y axis', ...this._ends.flatMap((end, index) => (index ? ['to', end] : [end])));
    this._show(...stored(_key));
  }

  get limits(): Limits {
    const [low = null, high = null] = this._ends.map(end => (end.value === '' ? null : end.valueAsNumber));
    return [low, high];
  }

  private _set(full: boolean): void {
    const [low = '', high = ''] = this._ends.map(end => end.value);
    keep(this._key, [full, low, high]);
    this._show(full, low, high);
    this._changed();
  }

  private _show(full: boolean, ...ends: readonly string[]): void {
    this._full = full;
    this._ends.forEach((end, index) => (end.value = ends[index] ?? ''));
    this._root.classList.toggle('dl-full', full);
    setAttribute(this.button, 'aria-pressed', String(full));
    show(this.range, full);
  }
}

type Stored = [full: boolean, low: string, high: string];

function stored(key: string): Stored {
  try {
    return JSON.parse(sessionStorage.getItem(key) ?? '') as Stored;
  } catch {
    return [false, '', '']; // nothing is kept, or the browser keeps nothing
  }
}

function keep(key: string, look: Stored): void {
  try {
    sessionStorage.setItem(key, JSON.stringify(look));
  } catch {
    // It lasts as long as the view.
  }
}
