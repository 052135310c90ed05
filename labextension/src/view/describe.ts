/** Curves in words and as a table, for those who do not look at the picture. */

import type { Curve } from '../api/types';
import { number } from '../model/text';
import { brokenPoints, type Line } from './lines';
import { secondsText } from './ticks';
import type { Axis } from './settings';

export const ROWS = 200;

/** `loss by epoch. training: 2.302 at epoch 0.1, 0.1234 at epoch 10, lowest 0.12.` */
export function inWords(metric: string, lines: readonly Line[], axis: Axis): string {
  return [`${metric} by ${axis}.`, ...lines.map(line => lineInWords(line, axis))].join(' ');
}

function lineInWords(line: Line, axis: Axis): string {
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

/** `epoch 3.2`, `step 141`, `2:05`: a place on the axis. */
export function placeText(x: number, axis: Axis): string {
  return axis === 'time' ? secondsText(x, 1) : `${axis} ${axis === 'step' ? x : roundedEpoch(x)}`;
}

function roundedEpoch(epoch: number): string {
  return String(Number(epoch.toFixed(2)));
}

/** A line's value at one of its points, as text. */
export function valueText(curve: Curve, index: number): string {
  const value = curve.mean[index];
  if (value === undefined) {
    return '';
  }
  return value === null ? 'not finite' : number(value);
}

/** What the ring marks on a line, and in brackets what was reported there, where these are not the same. */
export function markedText(line: Line, index: number): string {
  return besideRaw(line, index, valueText(line.curve, index));
}

/** A line's newest value, said like any other. */
export function lastText(line: Line): string {
  const { last } = line.curve;
  return last === null ? '' : besideRaw(line, line.mean.length - 1, number(last));
}

function besideRaw(line: Line, index: number, raw: string): string {
  const drawn = line.raw ? line.mean[index] : undefined;
  return typeof drawn === 'number' ? `${number(drawn)} (${raw})` : raw;
}

/** At most ROWS rows: step, epoch, and each line's values; of more, evenly many. */
export function tableOf(lines: readonly Line[]): { head: string[]; rows: string[][]; left: number } {
  const steps = [...new Set(lines.flatMap(line => line.curve.step))].sort((one, other) => one - other);
  const kept = keptSteps(lines, steps);
  const places = lines.map(line => new Map(line.curve.step.map((step, index) => [step, index])));
  const rows = kept.map(step => {
    const indices = places.map(place => place.get(step));
    const epoch = lines.map((line, which) => line.curve.epoch[indices[which] ?? -1]).find(each => each !== undefined);
    return [
      String(step),
      epoch === undefined ? '' : roundedEpoch(epoch),
      ...lines.map((line, which) => valueText(line.curve, indices[which] ?? -1))
    ];
  });
  return { head: ['step', 'epoch', ...lines.map(line => line.label)], rows, left: steps.length - kept.length };
}

/** Evenly many, and each step of a line that has few. */
function keptSteps(lines: readonly Line[], steps: readonly number[]): number[] {
  const few = new Set(lines.filter(line => line.curve.step.length <= ROWS / 4).flatMap(line => line.curve.step));
  const fixed = few.size < ROWS ? few : new Set<number>();
  const others = evenly(
    steps.filter(step => !fixed.has(step)),
    ROWS - fixed.size
  );
  return [...fixed, ...others].sort((one, other) => one - other);
}

/** At most `most` of them, the first and the last among them. */
export function evenly<T>(items: readonly T[], most: number): T[] {
  if (items.length <= most) {
    return [...items];
  }
  const step = (items.length - 1) / Math.max(most - 1, 1);
  return Array.from({ length: most }, (_, index) => items[Math.round(index * step)]).filter(item => item !== undefined);
}
