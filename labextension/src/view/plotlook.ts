/** Look of plots as uPlot options: axes, scales, lines, bands and crosshair. */

import type uPlot from 'uplot';

import { DOTS, type Line } from './lines';
import type { Limits } from './plotsize';
import type { Axis } from './settings';
import type { Theme } from './theme';
import { logRange, logTicks, logTickText, plainRange, SECONDS, secondsText, tickText, within } from './ticks';
import type { Span } from './zoom';

const ROUND = Array.from({ length: 14 }, (_, power) => [1, 2, 5].map(digit => digit * 10 ** (power - 2))).flat();
const WHOLE = ROUND.slice(6);
const INCREMENTS: Record<Axis, number[]> = {
  epoch: ROUND,
  step: WHOLE,
  row: WHOLE,
  time: SECONDS
};

const FOLLOWED = new Set(['mousemove', 'mouseleave']); // what the other plots of a group do, too

export interface Picture {
  readonly lines: readonly Line[];
  readonly axis: Axis;
  readonly log: boolean;
}

export type Layer = 'low' | 'high' | 'raw' | 'mean';

/** Return the layers of a line, in drawing order. */
export function layers(line: Line): Layer[] {
  const band: Layer[] = line.low && line.high ? ['low', 'high'] : [];
  return [...band, ...(line.raw ? (['raw'] as const) : []), 'mean'];
}

/** Return a key of the properties for which a plot must be recreated. */
export function shapeOf({ lines, axis, log }: Picture): string {
  return JSON.stringify([axis, log, lines.map(line => [line.label, line.colour, line.dashed, layers(line)])]);
}

/** Return the scales; `span` returns the shown part of the x axis, null for all of it, and `limits` those of y. */
export function scalesOf(picture: Picture, span: () => Span | null, limits: () => Limits): uPlot.Scales {
  const y: uPlot.Scale = {
    range: (_, min, max) => within((picture.log ? logRange : plainRange)(min, max), limits(), picture.log)
  };
  if (picture.log) {
    // eslint-disable-next-line @typescript-eslint/no-unsafe-enum-assignment -- the enum is not there when it runs
    y.distr = 3;
  }
  // Not uPlot's own limits, whose margin around a single point differs from that of other plots.
  return { x: { time: false, range: plot => [...(span() ?? wholeOf(plot.data[0].at(-1) ?? 0))] }, y };
}

export function axesOf({ axis, log }: Picture, theme: Theme): uPlot.Axis[] {
  const plain = { stroke: theme.colour('dim'), font: theme.font(11), gap: 5, ticks: { show: false } };
  const line = { show: true, stroke: theme.colour('grid'), width: 1 };
  const x: uPlot.Axis = {
    ...plain,
    size: 22,
    space: 52,
    grid: { show: false },
    border: line,
    incrs: INCREMENTS[axis],
    values: (_, splits, __, ___, step) => splits.map(value => (axis === 'time' ? secondsText : tickText)(value, step))
  };
  const y: uPlot.Axis = {
    ...plain,
    space: 30,
    size: (_, values) => 12 + 6.5 * Math.max(3, ...((values as string[] | null) ?? []).map(value => value.length)),
    grid: line,
    values: (_, splits, __, ___, step) => splits.map(value => (log ? logTickText(value) : tickText(value, step)))
  };
  const ticks: uPlot.Axis = { splits: (_, __, min, max) => logTicks(min, max), filter: (_, splits) => splits };
  return [x, log ? { ...y, ...ticks } : y];
}

/**
 * Return all series except x, line by line and layer by layer; `points` has the current number of points of each line.
 */
export function seriesOf(lines: readonly Line[], theme: Theme, points: (line: number) => number): uPlot.Series[] {
  return lines.flatMap((line, index) => {
    const colour = theme.colour(line.colour);
    return layers(line).map(layer => series(layer, line, colour, () => points(index) <= DOTS));
  });
}

function series(layer: Layer, line: Line, colour: string, dotted: () => boolean): uPlot.Series {
  switch (layer) {
    case 'low':
    case 'high':
      return { width: 0, stroke: 'transparent', points: { show: false } };
    case 'raw':
      return { width: 1, stroke: withAlpha(colour, 0.28), points: { show: false } };
    case 'mean': {
      const points = { show: dotted, size: 5, fill: colour, stroke: colour, width: 0 };
      return { width: 1.5, stroke: colour, points, ...(line.dashed ? { dash: [5, 4] } : {}) };
    }
  }
}

/** Return the bands from minimum to maximum, drawn behind the lines. */
export function bandsOf(lines: readonly Line[], theme: Theme): uPlot.Band[] {
  const ends = lastSeriesOf(lines);
  return lines.flatMap((line, index) => {
    const high = (ends[index] ?? 0) - (line.raw ? 2 : 1);
    const fill = withAlpha(theme.colour(line.colour), line.raw ? 0.1 : 0.18);
    return line.low && line.high ? [{ series: [high, high - 1] as uPlot.Band.Bounds, fill }] : [];
  });
}

/** Return the index of the series with each line's mean, its last layer; index 0 is x. */
export function lastSeriesOf(lines: readonly Line[]): number[] {
  let last = 0;
  return lines.map(line => (last += layers(line).length));
}

/** Return the whole x axis of a plot whose last point is at `last`. */
export function wholeOf(last: number): Span {
  return [0, last * 1.01 || 1];
}

/** Return the crosshair, and how a part of the x axis is selected; `reset` is called after a double click. */
export function cursorOf(lines: readonly Line[], theme: Theme, group: string, reset: () => void): uPlot.Cursor {
  const means = lastSeriesOf(lines);
  const ring = (index: number): string => {
    const line = lines[means.indexOf(index)];
    return line ? theme.colour(line.colour) : 'transparent';
  };
  return {
    y: false,
    drag: { x: true, y: false, setScale: false, dist: 5 },
    bind: { dblclick: () => () => (reset(), null) },
    points: {
      size: 7,
      width: 2,
      stroke: (_, index) => ring(index),
      fill: (_, index) => (means.includes(index) ? theme.colour('paper') : 'transparent')
    },
    dataIdx: (plot, index, closest, x) => (index === 0 ? closest : nearest(plot.data, index, closest, x)),
    sync: { key: group, scales: ['x', null], setSeries: false, filters: { pub: type => FOLLOWED.has(type) } }
  };
}

/** Return the nearest index at which a column has a point, by distance on the axis. */
function nearest(data: uPlot.AlignedData, column: number, closest: number, x: number): number | null {
  const [xs, values] = [data[0], data[column] ?? []];
  let [before, after] = [closest, closest];
  while (before >= 0 && values[before] === undefined) {
    before -= 1;
  }
  while (after < values.length && values[after] === undefined) {
    after += 1;
  }
  if (before < 0 || after >= values.length) {
    return before >= 0 ? before : after < values.length ? after : null;
  }
  return x - (xs[before] ?? x) <= (xs[after] ?? x) - x ? before : after;
}

function withAlpha(colour: string, alpha: number): string {
  return `color-mix(in srgb, ${colour} ${alpha * 100}%, transparent)`;
}
