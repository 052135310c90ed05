/** Curves that are extended report by report, and downsampled for display. */

import type { Curve, Curves, Kind, Num, StoredReport } from '../api/types';

export const POINTS = 400; // a curve is reduced to this many points once it has twice as many
export const LARGEST = 1e150; // larger values are treated as infinity: no axis can show them

/** Convert a JSON number to a number; the service sends NaN and infinity as text. */
export function num(value: Num): number {
  return Number(value);
}

/**
 * Curves of one trial, to which reports are added.
 *
 * Reports are appended to private columns. `curves` returns immutable copies, which are created on access and only for
 * curves that have grown since. Therefore the cost of a report does not depend on the number of earlier ones, a copy is
 * made once per frame instead of once per report, and views detect changed curves by `===`.
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

  /** Sequence number of the newest report in the curves. */
  get seq(): number {
    return this._seq;
  }

  /** Current curves, in the order in which their metrics were first reported. */
  get curves(): readonly Curve[] {
    return [...this._growing.values()].map(each => each.curve);
  }

  /** Add a report; return false if it is included already, or belongs to another trial. */
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

/**
 * Return the curve reduced to at most `limit` points, each of about equally many reports; the same curve if it has no
 * more.
 */
export function thinned(curve: Curve, limit: number): Curve {
  return curve.step.length <= limit ? curve : asCurve(curve, merged(pointsOf(curve), limit));
}

const apart = new WeakMap<Curve, readonly Curve[]>(); // of curves that have not changed, the same parts

/**
 * Return a curve's parts, one for each training of a program that has several: a teacher's, and its student's.
 *
 * A later training counts its own epochs, so the epochs fall where it begins. A curve whose points all lie at the end
 * of the same epoch has one of each training.
 */
export function trainingsOf(curve: Curve): readonly Curve[] {
  const known = apart.get(curve);
  if (known) {
    return known;
  }
  const points = pointsOf(curve);
  const first = points[0]?.epoch ?? 0;
  const single = first > 0 && points.every(point => point.epoch === first);
  const begins = points.flatMap((_, index) =>
    index && !single && follows(points[index - 1], points[index]) ? [] : [index]
  );
  const parts = begins.map((begin, part) => {
    const own = points.slice(begin, begins[part + 1]);
    const last = part === begins.length - 1 ? curve.last : (own.at(-1)?.mean ?? null);
    return { ...asCurve(curve, own), last };
  });
  const found = parts.length > 1 ? parts : [curve];
  apart.set(curve, found);
  return found;
}

/** Return whether a point belongs to the same training as the one before. */
function follows(before: Point | undefined, point: Point | undefined): boolean {
  return (before?.epoch ?? 0) <= (point?.epoch ?? 0);
}

/**
 * Return an exponential moving average as in TensorBoard.
 *
 * `weight` 0 changes nothing. The start is corrected for bias, so that it is not drawn towards zero. Points without a
 * value are skipped.
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

/** Growing curve: its points in order of steps, and the copy that was returned last. */
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
    if (this._points[place - 1]?.step === report.step) {
      return; // a report that was completed by other metrics arrives again
    }
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

/** Return the index at which a point at `step` must be inserted, nearly always the end. */
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
 * Merge points until there are at most `limit`: reports are divided into `limit` shares of equal length, and
 * neighbouring points of one training that begin in the same share are merged.
 *
 * The resolution is therefore the same for old and new points, however often this is repeated.
 */
function merged(points: readonly Point[], limit: number): Point[] {
  const total = points.reduce((sum, point) => sum + point.size, 0);
  const found: Point[] = [];
  let [before, share] = [0, -1];
  for (const point of points) {
    const own = Math.floor((before * limit) / total);
    const neighbour = own === share && follows(found.at(-1), point) ? found.pop() : undefined;
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

/** Return mean, minimum and maximum of two points together; a point without a finite value is ignored. */
function values(one: Point, next: Point): [number | null, number | null, number | null] {
  if (one.mean === null || one.low === null || one.high === null) {
    return [next.mean, next.low, next.high];
  }
  if (next.mean === null || next.low === null || next.high === null) {
    return [one.mean, one.low, one.high];
  }
  const mean = (one.mean * one.size + next.mean * next.size) / (one.size + next.size);
  const [low, high] = [Math.min(one.low, next.low), Math.max(one.high, next.high)];
  return [Math.min(Math.max(mean, low), high), low, high]; // rounding must not move the mean out of the band
}
