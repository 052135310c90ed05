/** Lines on a canvas: a small interface to uPlot. */

import uPlot from 'uplot';

import { setAttribute } from './dom';
import { aligned, type Line } from './lines';
import { axesOf, bandsOf, cursorOf, lastSeriesOf, layers, type Picture, scalesOf, seriesOf, shapeOf } from './plotlook';
import { drawCrosses, drawRing } from './plotmarks';
import type { Limits } from './plotsize';
import type { Theme } from './theme';
import type { Span } from './zoom';

const LEAST = 20; // pixels: minimum size of a plot
const NO_AXIS = 32; // pixels reserved if there is no y axis: about its width
const NO_SELECTION = { left: 0, top: 0, width: 0, height: 0 };
const NOTHING: Picture = { lines: [], axis: 'epoch', log: false };

/** Position of the pointer: x, and for each line the index of its nearest point. */
export interface Hover {
  readonly x: number;
  readonly nearest: readonly (number | null)[];
}

/** Plot in a node, which is recreated if its shape changes, and otherwise updated. */
export class Plot {
  private _plot: uPlot | null = null;
  private _shape = '';
  private _picture = NOTHING;
  private _width = 0;
  private _height = 0;
  private _span: Span | null = null;

  /**
   * `group` names the plots whose crosshairs move together; `limits` returns the y range that the user set; `zoomed` is called when a part of the x axis is selected,
   * or, with null, all of it.
   */
  constructor(
    private readonly _node: HTMLElement,
    private readonly _theme: Theme,
    private readonly _group: string,
    private readonly _limits: () => Limits,
    private readonly _hovered: (hover: Hover | null) => void,
    private readonly _zoomed: (span: Span | null) => void
  ) {}

  /** Part of the x axis that the next drawing shows; null: all of it. */
  set span(span: Span | null) {
    this._span = span;
    this._plot?.setSelect(NO_SELECTION, false);
  }

  resize(width: number, height: number): void {
    [this._width, this._height] = [Math.floor(width), Math.floor(height)];
  }

  /** Draw; return false if there is no space. `words` describe the plot for screen readers. */
  draw(picture: Picture, words: string): boolean {
    if (this._width < LEAST || this._height < LEAST) {
      return false;
    }
    this._picture = picture;
    const plot = this._shape === shapeOf(picture) ? this._fed() : this._made();
    setAttribute(plot.ctx.canvas, 'role', 'img');
    setAttribute(plot.ctx.canvas, 'aria-label', words);
    return true;
  }

  /** Forget the current look, so that the next drawing uses the theme's colours. */
  restyle(): void {
    this._shape = '';
  }

  dispose(): void {
    this._plot?.destroy();
    this._plot = null;
    this._shape = '';
  }

  private _made(): uPlot {
    this.dispose();
    const plot = new uPlot(this._options(), dataOf(this._picture.lines), this._node);
    this._plot = plot;
    this._shape = shapeOf(this._picture);
    return plot;
  }

  private _fed(): uPlot {
    const plot = this._plot ?? this._made();
    plot.batch(() => {
      if (plot.width !== this._width || plot.height !== this._height) {
        plot.setSize({ width: this._width, height: this._height });
      }
      plot.setData(dataOf(this._picture.lines));
    });
    return plot;
  }

  private _options(): uPlot.Options {
    const { lines } = this._picture;
    const points = (line: number): number => this._picture.lines[line]?.x.length ?? 0;
    return {
      width: this._width,
      height: this._height,
      padding: [6, 16, 0, () => (hasValues(this._picture) ? 0 : NO_AXIS)],
      legend: { show: false },
      scales: scalesOf(this._picture, () => this._span, this._limits),
      axes: axesOf(this._picture, this._theme),
      series: [{}, ...seriesOf(lines, this._theme, points)],
      bands: bandsOf(lines, this._theme),
      cursor: cursorOf(lines, this._theme, this._group, () => this._zoomed(null)),
      hooks: { draw: [this._marks], setCursor: [this._moved], setSelect: [this._selected] }
    };
  }

  private readonly _moved = (plot: uPlot): void => {
    const { left, idx, idxs } = plot.cursor;
    const all = plot.data[0];
    const x = typeof idx === 'number' && left !== undefined && left >= 0 ? all[idx] : undefined;
    if (x === undefined) {
      this._hovered(null);
      return;
    }
    const { lines } = this._picture;
    const places = lastSeriesOf(lines).map(index => idxs?.[index] ?? null);
    const own = lines.map((line, index) => placeIn(line, all[places[index] ?? -1]));
    this._hovered({ x, nearest: own });
  };

  private readonly _selected = (plot: uPlot): void => {
    const { left, width } = plot.select;
    this._zoomed([plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')]);
  };

  private readonly _marks = (plot: uPlot): void => {
    drawCrosses(plot, this._broken(), this._theme.colour('bad'));
    for (const { best, x, colour } of this._picture.lines) {
      const at = best === null ? undefined : x[best.index];
      if (best && at !== undefined) {
        drawRing(plot, [at, best.value], this._theme.colour(colour), this._theme.colour('paper'));
      }
    }
  };

  private _broken(): number[] {
    return this._picture.lines.flatMap(line => line.broken).sort((one, other) => one - other);
  }
}

/** Return whether there is any value for the y axis. */
function hasValues({ lines }: Picture): boolean {
  return lines.some(line => line.mean.some(value => value !== null));
}

function dataOf(lines: readonly Line[]): uPlot.AlignedData {
  return aligned(
    lines.map(line => line.x),
    lines.map(line => layers(line).map(layer => line[layer] ?? []))
  );
}

function placeIn(line: Line, x: number | undefined): number | null {
  const place = x === undefined ? -1 : line.x.indexOf(x);
  return place < 0 ? null : place;
}
