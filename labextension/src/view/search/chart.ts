/** Drawing with a title, as wide as its container, whose trials can be selected by clicking. */

import { h, setAttribute, setText, show } from '../dom';
import { paint, type Shape } from './shapes';

const SVG = 'http://www.w3.org/2000/svg';
const LEAST = 60; // pixels: minimum width

export type Draw = (width: number, height: number) => readonly Shape[];

export class Chart {
  readonly svg = document.createElementNS(SVG, 'svg');
  readonly root: HTMLElement;
  private readonly _head = h('figcaption');
  private readonly _title = h('span', { class: 'dl-plot-name' });
  private readonly _note = h('p', { class: 'dl-dim dl-chart-note' });
  private readonly _resizing: ResizeObserver;
  private _draw: Draw | null = null;
  private _width = 0;

  /** `picked` is called with a clicked trial; `beside` is placed next to the title. */
  constructor(
    title: string,
    private _height: number,
    picked: (trial: number) => void,
    beside: HTMLElement | null = null
  ) {
    setText(this._title, title);
    this._head.append(this._title, ...(beside ? [beside] : []));
    this.svg.setAttribute('role', 'img');
    this.svg.classList.add('dl-svg');
    this.svg.addEventListener('click', event => {
      const trial = event.target instanceof Element ? event.target.getAttribute('data-trial') : null;
      if (trial !== null) {
        picked(Number(trial));
      }
    });
    this.root = h('figure', { class: 'dl-chart', 'aria-label': title }, this._head, this._note);
    this.root.insertBefore(this.svg, this._note);
    this._resizing = new ResizeObserver(entries => {
      this._width = Math.floor(entries.at(-1)?.contentRect.width ?? 0);
      this._paint();
    });
    this._resizing.observe(this.root);
  }

  /** Set the drawing; `words` describe it for screen readers, `note` is shown below it. */
  update(draw: Draw, words: string, note = '', height = this._height): void {
    this._draw = draw;
    this._height = height;
    setAttribute(this.svg, 'aria-label', words);
    setText(this._note, note);
    show(this._note, note !== '');
    this._paint();
  }

  dispose(): void {
    this._resizing.disconnect();
  }

  private _paint(): void {
    if (this._draw && this._width >= LEAST) {
      this.svg.setAttribute('width', String(this._width));
      this.svg.setAttribute('height', String(this._height));
      this.svg.setAttribute('viewBox', `0 0 ${this._width} ${this._height}`);
      paint(this.svg, this._draw(this._width, this._height));
    }
  }
}
