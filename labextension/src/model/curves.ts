/** Curves that grow live: reports go in one by one, and what comes out is thin enough for a screen. */

import type { Curve, Curves, Kind, Num, StoredReport } from '../api/types';

export const POINTS = 400; // a curve is thinned to this many once it has twice as many
export const LARGEST = 1e150; // what is not below is taken like infinity: no axis can hold it

/** The number itself: what is not finite travels as text. */
export function num(value: Num): number {
  return Number(value);
}

/**
 * The curves of one trial, to which reports are added.
 *
 * A report is pushed onto columns that belong to this object alone, and `curves` hands out copies that never change: one
 * is made when it is asked for, and only of a curve that has grown since. So a report costs the same however many
 * there were, a copy is made once a frame and not once a report, and a view sees by `===` which curves have changed.
 */
export class LiveCurves {
  private _seq = 0;
  private readonly _growing = new Map<string, Growing>();

  constructor(
    readonly trial = 1,
    start: Curves | null = null
  ) {
    this._seq = start?.seq ?? 0;
    for (const curve of start?.curves ?? []) {
      this._growing.set(key(curve.kind, curve.metric), new Growing(curve));
    }
  }

  /** Of the newest report that these include. */
  get seq(): number {
    return this._seq;
  }

  /** As they are now, in the order in which their metrics were first told. */
  get curves(): readonly Curve[] {
    return [...this._growing.values()].map(each => each.curve);
  }

  /** Take a report in; false for one that these include already, or of another trial. */
  add(report: StoredReport): boolean {
    if (report.trial !== this.trial || report.seq <= this._seq) {
      return false;
    }
    this._seq = report.seq;
    for (const [metric, value] of Object.entries(report.metrics)) {
      this._of(report.kind, metric).add(report, value);
    }
    return true;
  }

  private _of(kind: Kind, metric: string): Growing {
    const known = this._growing.get(key(kind, metric));
    if (known) {
      return known;
    }
    const fresh = new Growing(empty(kind, metric));
    this._growing.set(key(kind, metric), fresh);
    return fresh;
  }
}

/** The curve with at most `limit` points, each of about as many reports as the others; itself if it has no more. */
export function thinned(curve: Curve, limit: number): Curve {
  return curve.step.length <= limit ? curve : asCurve(curve, merged(pointsOf(curve), limit));
}

/**
 * An exponential moving average as TensorBoard draws it: `weight` 0 changes nothing, and its start is not drawn towards
 * zero. A point without a value stays without one and does not count.
 */
export function smoothed(values: readonly (number | null)[], weight: number): (number | null)[] {
  let [last, count] = [0, 0];
  return values.map(value => {
    if (value === null || weight <= 0) {
      return value;
    }
    last = last * weight + (1 - weight) * value;
    count += 1;
    return last / (1 - weight ** count);
  });
}

interface Point {
  size: number;
  step: number;
  epoch: number;
  at: number;
  mean: number | null;
  low: number | null;
  high: number | null;
  broken: boolean;
}

/** One curve that grows: its points in the order of their steps, and the copy that was handed out last. */
class Growing {
  private _points: Point[];
  private _curve: Curve | null;
  private _last: Num | null;

  constructor(private readonly _start: Curve) {
    this._points = pointsOf(_start);
    this._curve = _start;
    this._last = _start.last;
  }

  get curve(): Curve {
    this._curve ??= { ...asCurve(this._start, this._points), last: this._last };
    return this._curve;
  }

  add(report: StoredReport, value: Num): void {
    const place = placeOf(report.step, this._points);
    if (place === this._points.length) {
      this._last = value;
    }
    this._points.splice(place, 0, pointOf(report, value));
    if (this._points.length > 2 * POINTS) {
      this._points = merged(this._points, POINTS);
    }
    this._curve = null;
  }
}

function key(kind: Kind, metric: string): string {
  return `${kind} ${metric}`;
}

function empty(kind: Kind, metric: string): Curve {
  const columns = { size: [], step: [], epoch: [], at: [], mean: [], low: [], high: [], broken: [] };
  return { kind, metric, ...columns, last: null };
}

/** Where a point at `step` belongs; nearly always at the end. */
function placeOf(step: number, points: readonly Point[]): number {
  let place = points.length;
  while (place > 0 && (points[place - 1]?.step ?? 0) > step) {
    place -= 1;
  }
  return place;
}

function pointOf(report: StoredReport, value: Num): Point {
  const amount = num(value);
  const finite = Math.abs(amount) < LARGEST ? amount : null;
  const { step, epoch, at } = report;
  return { size: 1, step, epoch, at, mean: finite, low: finite, high: finite, broken: finite === null };
}

function pointsOf(curve: Curve): Point[] {
  const broken = new Set(curve.broken);
  return curve.step.map((step, index) => ({
    size: curve.size[index] ?? 1,
    step,
    epoch: curve.epoch[index] ?? 0,
    at: curve.at[index] ?? 0,
    mean: curve.mean[index] ?? null,
    low: curve.low[index] ?? null,
    high: curve.high[index] ?? null,
    broken: broken.has(index)
  }));
}

function asCurve(about: Curve, points: readonly Point[]): Curve {
  return {
    kind: about.kind,
    metric: about.metric,
    size: points.map(point => point.size),
    step: points.map(point => point.step),
    epoch: points.map(point => point.epoch),
    at: points.map(point => point.at),
    mean: points.map(point => point.mean),
    low: points.map(point => point.low),
    high: points.map(point => point.high),
    broken: points.flatMap((point, index) => (point.broken ? [index] : [])),
    last: about.last
  };
}

/**
 * At most `limit` points: the reports are cut into that many shares of equal length, and neighbours that begin in
 * the same share become one. So what is old stays as fine as what is new, however often this is done.
 */
function merged(points: readonly Point[], limit: number): Point[] {
  const total = points.reduce((sum, point) => sum + point.size, 0);
  const found: Point[] = [];
  let [before, share] = [0, -1];
  for (const point of points) {
    const own = Math.floor((before * limit) / total);
    const neighbour = own === share ? found.pop() : undefined;
    found.push(neighbour ? joined(neighbour, point) : point);
    before += point.size;
    share = own;
  }
  return found;
}

function joined(one: Point, next: Point): Point {
  const [mean, low, high] = values(one, next);
  return { ...next, size: one.size + next.size, mean, low, high, broken: one.broken || next.broken };
}

/** Mean, lowest and highest of both together; a point without a finite value adds nothing. */
function values(one: Point, next: Point): [number | null, number | null, number | null] {
  if (one.mean === null || one.low === null || one.high === null) {
    return [next.mean, next.low, next.high];
  }
  if (next.mean === null || next.low === null || next.high === null) {
    return [one.mean, one.low, one.high];
  }
  const mean = (one.mean * one.size + next.mean * next.size) / (one.size + next.size);
  const [low, high] = [Math.min(one.low, next.low), Math.max(one.high, next.high)];
  return [Math.min(Math.max(mean, low), high), low, high]; // the last bit of a division must not lead out of the band
}
