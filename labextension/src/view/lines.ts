/** Data of plots: which metrics share a plot, and each curve as a line over the selected axis. */

import type { Curve, Metric } from '../api/types';
import { LARGEST, POINTS, smoothed, thinned, trainingsOf } from '../model/curves';
import type { Axis, ViewSettings } from './settings';

export const DOTS = 30; // a line with at most this many points shows each of them

type Column = readonly (number | null)[];

export interface Line {
  readonly label: string;
  readonly colour: string; // a colour of the theme
  readonly dashed: boolean;
  readonly curve: Curve;
  readonly x: readonly number[];
  readonly mean: Column;
  readonly raw: Column | null; // unsmoothed values, if `mean` is smoothed
  readonly low: Column | null; // minimum and maximum, if points summarise several reports
  readonly high: Column | null;
  readonly broken: readonly number[]; // positions on the axis
  readonly best: BestPoint | null; // of a curve with a mode
}

/** Best point of a line: its index, and its value as it was reported. */
export interface BestPoint {
  readonly index: number;
  readonly value: number;
}

export interface Panel {
  readonly metric: string;
  readonly curves: readonly Curve[]; // training before validation
}

/** Return one panel per metric: the loss first, then validated metrics, then those of training only. */
export function panelsOf(curves: readonly Curve[]): Panel[] {
  const metrics = [...new Set(curves.map(curve => curve.metric))];
  const validated = new Set(curves.filter(curve => curve.kind === 'validation').map(curve => curve.metric));
  const rank = (metric: string): number => (metric === 'loss' ? 0 : validated.has(metric) ? 1 : 2);
  return metrics
    .sort((one, other) => rank(one) - rank(other))
    .map(metric => ({
      metric,
      curves: curves.filter(curve => curve.metric === metric).sort((one, other) => one.kind.localeCompare(other.kind))
    }));
}

interface LineLook {
  readonly label: string;
  readonly colour: string;
  readonly dashed?: boolean;
  readonly mode?: Metric['mode'] | undefined; // which values of the curve are better, if that is known
}

/** Convert a curve to lines, one for each training of its program; later ones have a number, and are dashed. */
export function linesOf(curve: Curve, look: LineLook, settings: ViewSettings, origin: number): Line[] {
  return trainingsOf(curve).map((part, index) => {
    const later = { ...look, label: `${look.label} ${index + 1}`, dashed: true };
    return lineOf(part, index ? later : look, settings, origin);
  });
}

const newest = new WeakMap<Curve, { line: Line; from: string }>();

/**
 * Convert a curve to a line; `origin` is time 0 of the time axis.
 *
 * While curve and settings are unchanged, the same object is returned, so that only experiments with new reports cost
 * time.
 */
export function lineOf(curve: Curve, look: LineLook, settings: ViewSettings, origin: number): Line {
  const from = JSON.stringify([look, settings.axis, settings.smoothing, origin]);
  const before = newest.get(curve);
  if (before?.from === from) {
    return before.line;
  }
  const line = converted(curve, look, settings, origin);
  newest.set(curve, { line, from });
  return line;
}

function converted(whole: Curve, look: LineLook, settings: ViewSettings, origin: number): Line {
  const curve = thinned(whole, POINTS); // live curves have a higher resolution at their end
  const values = curve.mean.map(drawable);
  const smooth = settings.smoothing > 0;
  const several = curve.size.some(size => size > 1);
  const x = along(curve, settings.axis, origin);
  const { label, colour, dashed = false, mode } = look;
  return {
    label,
    colour,
    dashed,
    curve,
    x,
    mean: smooth ? smoothed(values, settings.smoothing) : values,
    raw: smooth ? values : null,
    low: several ? curve.low.map(drawable) : null,
    high: several ? curve.high.map(drawable) : null,
    broken: brokenPoints(curve).map(index => x[index] ?? 0),
    best: mode === undefined ? null : bestPoint(mode === 'max' ? curve.high : curve.low, mode)
  };
}

/** Return the best of the values, the earliest of equal ones; null unless there are two to choose from. */
function bestPoint(values: Column, mode: Metric['mode']): BestPoint | null {
  const known = values.flatMap((value, index) => (drawable(value) === null ? [] : [{ index, value: value ?? 0 }]));
  const sign = mode === 'max' ? -1 : 1;
  known.sort((one, other) => sign * (one.value - other.value) || one.index - other.index);
  return known.length > 1 ? (known[0] ?? null) : null;
}

/** Return the positions of a curve's points on an axis. */
export function along(curve: Curve, axis: Axis, origin: number): readonly number[] {
  return axis === 'time' ? curve.at.map(at => Math.max(0, at - origin)) : curve[axis === 'epoch' ? axis : 'step'];
}

/** Return the indices of points with values that cannot be drawn: not finite, or too large. */
export function brokenPoints(curve: Curve): number[] {
  const huge = curve.high.flatMap((value, index) =>
    drawable(value) === null || drawable(curve.low[index] ?? null) === null ? [index] : []
  );
  return [...new Set([...curve.broken, ...huge])].sort((one, other) => one - other);
}

/** Return whether all values are positive, so that a logarithmic axis is possible. */
export function allPositive(curves: readonly Curve[]): boolean {
  return curves.every(curve => curve.low.every(value => value === null || value > 0));
}

/**
 * Align lines to uPlot's columns: common x values, then the values of each line.
 *
 * `undefined` marks an x at which a line has no point, null a point without a value, where the line is interrupted.
 */
export function aligned(x: readonly (readonly number[])[], columns: readonly (readonly Column[])[]): Aligned {
  const all = [...new Set(x.flat())].sort((one, other) => one - other);
  const place = new Map(all.map((value, index) => [value, index]));
  const own = columns.flatMap((group, line) =>
    group.map(column => {
      const spread = new Array<number | null | undefined>(all.length).fill(undefined);
      x[line]?.forEach((value, index) => {
        spread[place.get(value) ?? 0] = column[index] ?? null;
      });
      return spread;
    })
  );
  return [all, ...own];
}

export type Aligned = [number[], ...(number | null | undefined)[][]];

function drawable(value: number | null): number | null {
  return value !== null && Math.abs(value) < LARGEST ? value : null;
}
