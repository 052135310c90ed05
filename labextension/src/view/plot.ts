/** Lines on a canvas: a small interface to uPlot. */

import uPlot from 'uplot';

import { setAttribute } from './dom';
import { aligned, type Line } from './lines';
import { axesOf, bandsOf, cursorOf, lastSeriesOf, layers, type Picture, scalesOf, seriesOf, shapeOf } from './plotlook';
import type { Theme } from './theme';

const LEAST = 20; // pixels: minimum size of a plot
const NO_AXIS = 32; // pixels reserved if there is no y axis: about its width
const CROSS = 3; // half the size of a mark for a non-finite value, in pixels
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

  /** `group` names the plots whose crosshairs move together. */
  constructor(
    private readonly _node: HTMLElement,
    private readonly _theme: Theme,
    private readonly _group: string,
    private readonly _hovered: (hover: Hover | null) => void
  ) {}

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
      scales: scalesOf(this._picture),
      axes: axesOf(this._picture, this._theme),
      series: [{}, ...seriesOf(lines, this._theme, points)],
      bands: bandsOf(lines, this._theme),
      cursor: cursorOf(lines, this._theme, this._group),
      hooks: { draw: [this._crosses], setCursor: [this._moved] }
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

  /** Draw a red × at the bottom where a value is not finite. */
  private readonly _crosses = (plot: uPlot): void => {
    const { ctx, bbox } = plot;
    const half = CROSS * devicePixelRatio;
    const y = bbox.top + bbox.height - 2 * half;
    ctx.save();
    ctx.beginPath();
    for (const x of apart(
      this._broken().map(each => plot.valToPos(each, 'x', true)),
      2 * half
    )) {
      ctx.moveTo(x - half, y - half);
      ctx.lineTo(x + half, y + half);
      ctx.moveTo(x - half, y + half);
      ctx.lineTo(x + half, y - half);
    }
    ctx.strokeStyle = this._theme.colour('bad');
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.stroke();
    ctx.restore();
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

/** Return those of the ascending positions that are at least `distance` apart, so that marks do not overlap. */
function apart(places: readonly number[], distance: number): number[] {
  let before = -Infinity;
  return places.filter(place => {
    const kept = place - before >= distance;
    before = kept ? place : before;
    return kept;
  });
}
