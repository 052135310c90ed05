/** Several experiments side by side: overlaid curves, and a table of hyperparameters and results. */

import { ended, stateOf } from '../model/overview';
import { stateText, titleText } from '../model/text';
import type { Look } from '../service/watch';
import { button, h, keepKeys, setAttribute, setText, show } from './dom';
import { Frame } from './frame';
import { colourOf, overlaid } from './plotted';
import { Plots } from './plots';
import { rowsOf } from './rows';
import { RowTable } from './rowtable';
import { DEFAULTS, type ViewSettings } from './settings';
import { cssColour } from './theme';
import { Toolbar } from './toolbar';
import type { Watched } from './view';

const PACE_MS = 250; // between two drawings of what arrives: twenty experiments report many times a second

export class CompareView {
  private readonly _root: HTMLElement;
  private readonly _frame = new Frame(() => this._draw());
  private readonly _heads: readonly Heading[];
  private readonly _toolbar: Toolbar;
  private readonly _validation: HTMLInputElement;
  private readonly _plots: Plots;
  private readonly _empty = h('p', { class: 'dl-empty' });
  private readonly _table = new RowTable();
  private readonly _unsubscribe: (() => void)[];
  private readonly _out = new Set<number>(); // numbers of experiments that were taken out
  private _fresh = true;
  private _wroteAt = -Infinity; // by a monotonic clock
  private _timer: ReturnType<typeof setTimeout> | undefined;

  /** `open` shows an experiment by itself, where there is a place for it. */
  constructor(
    node: HTMLElement,
    private readonly _watches: readonly Pick<Watched, 'look' | 'subscribe'>[],
    settings: ViewSettings = DEFAULTS,
    open: ((number: number) => void) | null = null
  ) {
    const numbers = _watches.map(watch => `#${watch.look.number}`);
    this._root = h('article', {
      class: 'dl-sheet dl-compare',
      'aria-label': `Compare ${listed(numbers)}`,
      onkeydown: keepKeys
    });
    this._root.dataset.dlExperiments = _watches.map(watch => watch.look.number).join(' ');
    node.append(this._root);
    this._heads = _watches.map(({ look: { number } }, index) => {
      return new Heading(number, colourOf(index), open, () => this._take(number));
    });
    this._toolbar = new Toolbar(settings, () => this._plan());
    this._validation = h('input', { type: 'checkbox', checked: true, onchange: () => this._plan() });
    this._toolbar.root.append(h('label', {}, this._validation, 'validation only'));
    this._plots = new Plots(this._root, () => this._frame.request());
    this._toolbar.root.append(this._plots.reset);
    const heads = h('ul', { class: 'dl-compared', 'aria-label': 'Experiments' }, ...this._heads.map(head => head.root));
    this._root.append(heads, this._toolbar.root, this._plots.root, this._empty, this._table.root);
    this._unsubscribe = _watches.map(watch => watch.subscribe(() => this._changed()));
    this._draw();
  }

  /** Settings of the curves. */
  set settings(settings: ViewSettings) {
    this._toolbar.settings = settings;
    this._plan();
  }

  dispose(): void {
    this._unsubscribe.forEach(unsubscribe => unsubscribe());
    clearTimeout(this._timer);
    this._frame.dispose();
    this._plots.dispose();
    this._root.remove();
  }

  /** Schedule a drawing after a change; changes that arrive until then are drawn with it. */
  private _changed(): void {
    this._timer ??= setTimeout(
      () => {
        this._timer = undefined;
        this._fresh = true;
        this._frame.request();
      },
      Math.max(0, this._wroteAt + PACE_MS - performance.now())
    );
  }

  /** Update the texts if data has changed, else draw the plots: both in one frame would take too long. */
  private _draw(): void {
    if (this._fresh) {
      this._fresh = false;
      this._wroteAt = performance.now();
      this._write(this._watches.map(watch => watch.look));
    } else {
      this._plots.draw();
    }
  }

  /** Take an experiment out of plots and table, or put it back. */
  private _take(number: number): void {
    if (!this._out.delete(number)) {
      this._out.add(number);
    }
    this._fresh = true;
    this._frame.request();
  }

  private _write(all: readonly Look[]): void {
    all.forEach((look, index) => this._heads[index]?.update(look, this._out.has(look.number)));
    this._plan();
    const looks = all.filter(look => !this._out.has(look.number));
    const over = looks.every(look => look.overview && ended(look.overview));
    setText(this._empty, over ? 'no reports' : 'no reports yet');
    show(
      this._empty,
      looks.every(look => look.curves.length === 0)
    );
    this._table.update(
      looks.map(look => (look.overview ? titleText(look.overview) : `#${look.number}`)),
      rowsOf(
        looks.map(look => look.overview),
        Date.now() / 1000
      )
    );
  }

  /** Select what to plot, which is drawn in the next frame. */
  private _plan(): void {
    // One that was taken out keeps its place, and so the others their colours.
    const looks = this._watches.map(({ look }) => (this._out.has(look.number) ? { ...look, curves: [] } : look));
    const { settings } = this._toolbar;
    this._plots.update(overlaid(looks, settings, this._validation.checked), settings.axis);
    this._frame.request();
  }
}

/** Heading of one experiment: its colour, number, name and state, and a button that takes it out. */
class Heading {
  private readonly _title: HTMLElement;
  private readonly _chip = h('span', { class: 'dl-chip' });
  private readonly _problem = h('span', { class: 'dl-dim' });
  private readonly _toggle: HTMLButtonElement;
  readonly root: HTMLElement;

  constructor(
    private readonly _number: number,
    colour: string,
    open: ((number: number) => void) | null,
    taken: () => void
  ) {
    const shown = (): void => open?.(_number);
    this._title = open
      ? h('button', { type: 'button', class: 'dl-title dl-open', onclick: shown })
      : h('span', { class: 'dl-title' });
    this._toggle = button('', taken, 'dl-small');
    const swatch = h('span', { class: 'dl-swatch' });
    swatch.style.color = cssColour(colour);
    const name = h('span', { class: 'dl-compared-name' }, swatch, this._title);
    const facts = h('span', { class: 'dl-head-facts' }, this._chip, this._problem, this._toggle);
    this.root = h('li', {}, name, facts);
  }

  update({ overview, error }: Look, out: boolean): void {
    setText(this._title, overview ? titleText(overview) : `#${this._number}`);
    setText(this._chip, overview ? stateText(overview) : '');
    setAttribute(this._chip, 'data-state', overview ? stateOf(overview) : '');
    setText(this._problem, error ?? '');
    setText(this._toggle, out ? 'put back' : 'take out');
    setAttribute(this._toggle, 'aria-label', `${out ? 'Put back' : 'Take out'} #${this._number}`);
    this.root.classList.toggle('dl-out', out);
  }
}

function listed(words: readonly string[]): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1) ?? ''}`;
}
