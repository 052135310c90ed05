/** Grid of figures, one per metric; if there are many, some are shown only on demand. */

import { button, h, setChildren, setText, show } from './dom';
import { Figure } from './figure';
import { Sight } from './frame';
import type { Plotted } from './plotted';
import { wholeOf } from './plotlook';
import type { Axis } from './settings';
import { Theme } from './theme';
import { type Span, spanByKey } from './zoom';

const SHOWN = 6;
const KEYS = 'Plots: + and - zoom, arrow keys move, Escape shows all';
const BUDGET_MS = 2; // per frame, which then takes longer for pixels and layout; the next ones do what is left
let groups = 0;

interface Shown {
  readonly figure: Figure;
  from: readonly unknown[];
  due: Plotted | null; // what the figure does not have yet
}

/** Queue of figures of which the plot must be drawn, or the texts be updated, in order of arrival. */
class Queue {
  private readonly _waiting = new Set<Shown>(); // one that comes again keeps its place
  private _took = 0; // milliseconds, of the last one

  /** `serve` draws a figure or updates its texts; it returns false if that is not possible now. */
  constructor(private readonly _serve: (figure: Figure) => boolean) {}

  get empty(): boolean {
    return this._waiting.size === 0;
  }

  add(shown: Shown): void {
    this._waiting.add(shown);
  }

  remove(shown: Shown): void {
    this._waiting.delete(shown);
  }

  /**
   * Serve at least `first` figures, and more while each is expected to be done by the time `end`; return false if the
   * time was used up.
   */
  serve(end: number, first: number): boolean {
    let served = 0;
    for (const shown of [...this._waiting]) {
      const begun = performance.now();
      if (served >= first && begun + this._took > end) {
        return false;
      }
      renew(shown);
      if (this._serve(shown.figure)) {
        this._waiting.delete(shown);
        this._took = performance.now() - begun;
        served += 1;
      }
    }
    return true;
  }
}

export class Plots {
  readonly root: HTMLElement;
  readonly reset = button('Reset zoom', () => this._unzoom());
  private readonly _grid: HTMLElement;
  private readonly _more = button('', () => this._toggle(), 'dl-quiet');
  private readonly _figures = new Map<string, Shown>();
  private readonly _drawing = new Queue(figure => figure.draw());
  private readonly _writing = new Queue(figure => figure.write());
  private _drawsNext = true; // rather than writes
  private readonly _theme: Theme;
  private readonly _sight: Sight;
  private readonly _group: { group: string; name: string };
  private _plotted: readonly Plotted[] = [];
  private _all = false;
  private _axis: Axis | null = null;
  private _span: Span | null = null; // part of the x axis that all plots show

  /** `wanted` is called when `draw` must be called although no data has changed, as after a change of the theme. */
  constructor(
    host: HTMLElement,
    private readonly _wanted: () => void
  ) {
    this._group = { group: `daylight-${(groups += 1)}`, name: host.dataset.dlExperiments ?? '' };
    this._grid = h('div', { class: 'dl-plots', tabindex: 0, role: 'group', 'aria-label': KEYS });
    this._grid.addEventListener('keydown', event => this._key(event));
    this.root = h('div', {}, this._grid, this._more);
    show(this.reset, false);
    this._theme = new Theme(host, () => {
      this._figures.forEach(shown => {
        shown.figure.restyle();
        this._drawing.add(shown);
      });
      this._wanted();
    });
    this._sight = new Sight(this.root, this._wanted);
  }

  /** Show the plots; another axis shows all of it. */
  update(plotted: readonly Plotted[], axis: Axis): void {
    if (axis !== this._axis) {
      this._axis = axis;
      this._zoom(null);
    }
    this._list(plotted);
  }

  private _list(plotted: readonly Plotted[]): void {
    this._plotted = plotted;
    show(this._grid, plotted.length > 0);
    const shown = this._all ? plotted : plotted.slice(0, SHOWN);
    this._forget(new Set(shown.map(each => each.metric)));
    setChildren(
      this._grid,
      shown.map(each => this._updated(each).root)
    );
    const hidden = plotted.length - SHOWN;
    show(this._more, hidden > 0);
    setText(this._more, this._all ? 'fewer' : `${hidden} more`);
    this._more.ariaExpanded = String(this._all);
  }

  /**
   * Draw plots and update their texts, if visible, as much as a frame allows; return true if everything is done.
   *
   * If there is too much for one frame, frames alternate between plots and texts. Otherwise plots come first, since
   * drawing after new text would wait for its layout.
   */
  draw(): boolean {
    if (!this._sight.visible) {
      return false;
    }
    const draws = this._writing.empty || (this._drawsNext && !this._drawing.empty);
    const queues = draws ? [this._drawing, this._writing] : [this._writing, this._drawing];
    const end = performance.now() + BUDGET_MS;
    const done = queues.map((queue, place) => queue.serve(end, place === 0 ? 1 : 0)).every(each => each);
    this._drawsNext = done || !draws;
    if (!done) {
      this._wanted();
    }
    return queues.every(queue => queue.empty);
  }

  dispose(): void {
    this._sight.dispose();
    this._theme.dispose();
    this._forget(new Set());
  }

  private _updated(plotted: Plotted): Figure {
    const known = this._figures.get(plotted.metric);
    if (known && same(known.from, plotted.from)) {
      return known.figure;
    }
    const shown = known ?? this._created(plotted.metric);
    shown.from = plotted.from;
    shown.due = plotted;
    this._drawing.add(shown);
    if (known) {
      this._writing.add(shown);
    } else {
      renew(shown);
      shown.figure.write();
    }
    return shown.figure;
  }

  private _created(metric: string): Shown {
    const wanted = (): void => {
      this._drawing.add(shown);
      this._wanted();
    };
    const figure = new Figure(metric, this._theme, this._group, wanted, span => this._zoom(span));
    figure.span = this._span;
    const shown: Shown = { figure, from: [], due: null };
    this._figures.set(metric, shown);
    return shown;
  }

  private _forget(kept: ReadonlySet<string>): void {
    for (const [metric, shown] of this._figures) {
      if (!kept.has(metric)) {
        shown.figure.dispose();
        this._figures.delete(metric);
        this._drawing.remove(shown);
        this._writing.remove(shown);
      }
    }
  }

  private _toggle(): void {
    this._all = !this._all;
    this._list(this._plotted);
    this._wanted();
  }

  /** Show a part of the x axis in all plots; null shows all of it. */
  private _zoom(span: Span | null): void {
    this._span = span;
    show(this.reset, span !== null);
    this._figures.forEach(shown => {
      shown.figure.span = span;
      this._drawing.add(shown);
    });
    this._wanted();
  }

  private _unzoom(): void {
    this._zoom(null);
    this._grid.focus(); // the button is gone
  }

  private _key(event: KeyboardEvent): void {
    const last = Math.max(0, ...[...this._figures.values()].map(({ figure }) => figure.last));
    const span = spanByKey(event.key, this._span, wholeOf(last));
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (plain && span !== undefined && event.target === this._grid) {
      event.preventDefault();
      event.stopPropagation(); // the notebook has other uses for it
      this._zoom(span);
    }
  }
}

/** Pass a figure its new data, if there is any. */
function renew(shown: Shown): void {
  if (shown.due) {
    const { picture, note } = shown.due.make();
    shown.due = null;
    shown.figure.update(picture, note);
  }
}

function same(one: readonly unknown[], other: readonly unknown[]): boolean {
  return one.length === other.length && one.every((thing, index) => Object.is(thing, other[index]));
}
