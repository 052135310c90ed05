/** Grid of figures, one per metric; if there are many, some are shown only on demand. */

import { button, h, setChildren, setText, show } from './dom';
import { Figure } from './figure';
import { Sight } from './frame';
import type { Plotted } from './plotted';
import { Theme } from './theme';

const SHOWN = 6;
const BUDGET_MS = 6; // per frame: the figures that are left then are drawn in the next ones
let groups = 0;

interface Shown {
  readonly figure: Figure;
  from: readonly unknown[];
  due: Plotted | null; // what the figure does not show yet
}

export class Plots {
  readonly root: HTMLElement;
  private readonly _grid = h('div', { class: 'dl-plots' });
  private readonly _more = button('', () => this._toggle(), 'dl-quiet');
  private readonly _figures = new Map<string, Shown>(); // those drawn last are last, so that all have their turn
  private readonly _theme: Theme;
  private readonly _sight: Sight;
  private readonly _group = `daylight-${(groups += 1)}`;
  private _plotted: readonly Plotted[] = [];
  private _all = false;

  /** `wanted` is called when `draw` must be called although no data has changed. */
  constructor(
    host: HTMLElement,
    private readonly _wanted: () => void
  ) {
    this.root = h('div', {}, this._grid, this._more);
    this._theme = new Theme(host, () => {
      this._each(figure => figure.restyle());
      this._wanted();
    });
    this._sight = new Sight(this.root, this._wanted);
  }

  update(plotted: readonly Plotted[]): void {
    this._plotted = plotted;
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

  /** Draw if visible, as much as a frame allows; return true if everything is drawn. */
  draw(): boolean {
    if (!this._sight.visible) {
      return false;
    }
    const begun = performance.now();
    const drawn: boolean[] = [];
    for (const [metric, shown] of [...this._figures]) {
      if (performance.now() - begun > BUDGET_MS) {
        this._wanted();
        return false;
      }
      if (shown.due) {
        write(shown.figure, shown.due);
        shown.due = null;
        this._figures.delete(metric);
        this._figures.set(metric, shown);
      }
      drawn.push(shown.figure.draw());
    }
    return drawn.every(each => each);
  }

  dispose(): void {
    this._sight.dispose();
    this._theme.dispose();
    this._forget(new Set());
  }

  private _updated(plotted: Plotted): Figure {
    const known = this._figures.get(plotted.metric);
    if (known) {
      known.due = same(known.from, plotted.from) ? known.due : plotted;
      known.from = plotted.from;
      return known.figure;
    }
    const figure = new Figure(plotted.metric, this._theme, this._group, this._wanted);
    write(figure, plotted);
    this._figures.set(plotted.metric, { figure, from: plotted.from, due: null });
    return figure;
  }

  private _forget(kept: ReadonlySet<string>): void {
    for (const [metric, { figure }] of this._figures) {
      if (!kept.has(metric)) {
        figure.dispose();
        this._figures.delete(metric);
      }
    }
  }

  private _toggle(): void {
    this._all = !this._all;
    this.update(this._plotted);
    this._wanted();
  }

  private _each(act: (figure: Figure) => void): void {
    this._figures.forEach(({ figure }) => act(figure));
  }
}

function write(figure: Figure, plotted: Plotted): void {
  const { picture, note } = plotted.make();
  figure.update(picture, note);
}

function same(one: readonly unknown[], other: readonly unknown[]): boolean {
  return one.length === other.length && one.every((thing, index) => Object.is(thing, other[index]));
}
