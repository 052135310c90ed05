/** Curves as text and as a table, as an alternative to the plot. */

import type { Curve } from '../api/types';
import { number } from '../model/text';
import { brokenPoints, type Line } from './lines';
import { secondsText } from './ticks';
import type { Axis } from './settings';

export const ROWS = 200;

/** Describe curves: `loss by epoch. training: 2.302 at epoch 0.1, 0.1234 at epoch 10, lowest 0.12.` */
export function inWords(metric: string, lines: readonly Line[], axis: Axis): string {
  return [`${metric} by ${axis}.`, ...lines.map(line => lineInWords(line, axis))].join(' ');
}

const newest = new WeakMap<Line, { axis: Axis; words: string }>(); // lines that have not changed keep their words

function lineInWords(line: Line, axis: Axis): string {
  const before = newest.get(line);
  if (before?.axis === axis) {
    return before.words;
  }
  const words = described(line, axis);
  newest.set(line, { axis, words });
  return words;
}

function described(line: Line, axis: Axis): string {
  const { curve } = line;
  const known = curve.mean.flatMap((value, index) => (value === null ? [] : [{ value, x: line.x[index] ?? 0 }]));
  const [first, last] = [known[0], known.at(-1)];
  const broken = brokenPoints(curve).length;
  const parts =
    first && last
      ? [
          ...(known.length > 1 ? [`${number(first.value)} at ${placeText(first.x, axis)}`] : []),
          `${number(curve.last ?? last.value)} at ${placeText(line.x.at(-1) ?? 0, axis)}`,
          ...(known.length > 2 ? [`lowest ${number(lowest(curve))}`, `highest ${number(highest(curve))}`] : [])
        ]
      : ['no values yet'];
  return `${line.label}: ${[...parts, ...(broken ? [`${broken} not finite`] : [])].join(', ')}.`;
}

function lowest(curve: Curve): number {
  return Math.min(...curve.low.filter(value => value !== null));
}

function highest(curve: Curve): number {
  return Math.max(...curve.high.filter(value => value !== null));
}

/** Format a position on the axis: `epoch 3.2`, `step 141`, `2:05`. */
export function placeText(x: number, axis: Axis): string {
  return axis === 'time' ? secondsText(x, 1) : `${axis} ${roundedEpoch(x)}`;
}

function roundedEpoch(epoch: number): string {
  return String(Number(epoch.toFixed(2)));
}

/** Format a curve's value at a point. */
export function valueText(curve: Curve, index: number): string {
  const value = curve.mean[index];
  if (value === undefined) {
    return '';
  }
  return value === null ? 'not finite' : number(value);
}

/** Format the value marked on a line and, in brackets, the reported value if it differs (by smoothing). */
export function markedText(line: Line, index: number): string {
  return withNotes(line, index, valueText(line.curve, index), '');
}

/** Format a line's newest value like `markedText`, and its best one: `0.9461 (best 0.9697 @ 6)`. */
export function lastText(line: Line, axis: Axis): string {
  const { last } = line.curve;
  return last === null ? '' : withNotes(line, line.mean.length - 1, number(last), bestText(line, axis));
}

function bestText({ best, x, mean }: Line, axis: Axis): string {
  if (best === null || best.index === mean.length - 1) {
    return best === null ? '' : 'best';
  }
  const at = x[best.index] ?? 0;
  return `best ${number(best.value)} @ ${axis === 'time' ? secondsText(at, 1) : roundedEpoch(at)}`;
}

/** Format the drawn value and, in brackets, the reported one if it differs, and a note. */
function withNotes(line: Line, index: number, raw: string, note: string): string {
  const drawn = line.raw ? line.mean[index] : undefined;
  const smooth = typeof drawn === 'number';
  const notes = [...(smooth ? [raw] : []), ...(note ? [note] : [])];
  return (smooth ? number(drawn) : raw) + (notes.length ? ` (${notes.join(', ')})` : '');
}

/**
 * Return a table of at most ROWS rows: step, epoch, and each line's values; of more steps, an even selection.
 *
 * Values over rows that a model is used on have no epoch, and their step is a row.
 */
export function tableOf(lines: readonly Line[], axis: Axis): { head: string[]; rows: string[][]; left: number } {
  const steps = [...new Set(lines.flatMap(line => line.curve.step))].sort((one, other) => one - other);
  const kept = keptSteps(lines, steps);
  const over = axis === 'row';
  const places = lines.map(line => new Map(line.curve.step.map((step, index) => [step, index])));
  const rows = kept.map(step => {
    const indices = places.map(place => place.get(step));
    const epoch = lines.map((line, which) => line.curve.epoch[indices[which] ?? -1]).find(each => each !== undefined);
    return [
      String(step),
      ...(over ? [] : [epoch === undefined ? '' : roundedEpoch(epoch)]),
      ...lines.map((line, which) => valueText(line.curve, indices[which] ?? -1))
    ];
  });
  return {
    head: [...(over ? [axis] : ['step', 'epoch']), ...lines.map(line => line.label)],
    rows,
    left: steps.length - kept.length
  };
}

/** Return an even selection of steps, and all steps of lines with few points. */
function keptSteps(lines: readonly Line[], steps: readonly number[]): number[] {
  const few = new Set(lines.filter(line => line.curve.step.length <= ROWS / 4).flatMap(line => line.curve.step));
  const fixed = few.size < ROWS ? few : new Set<number>();
  const others = evenly(
    steps.filter(step => !fixed.has(step)),
    ROWS - fixed.size
  );
  return [...fixed, ...others].sort((one, other) => one - other);
}

/** Return at most `most` items, evenly selected, including the first and the last. */
export function evenly<T>(items: readonly T[], most: number): T[] {
  if (items.length <= most) {
    return [...items];
  }
  const step = (items.length - 1) / Math.max(most - 1, 1);
  return Array.from({ length: most }, (_, index) => items[Math.round(index * step)]).filter(item => item !== undefined);
}
