/** Position of values of any kind on an axis, from 0 to 1. */

import type { Metric, Num, Parameter, Range, SearchStatus, Space, TrialRow, Value } from '../../api/types';
import { bestRows } from '../../model/best';
import { num } from '../../model/curves';
import { number, trialWord, valueText } from '../../model/text';
import { logTicks, logTickText, tickText } from '../ticks';

export interface Tick {
  readonly at: number; // from 0 to 1
  readonly text: string;
}

export interface Scale {
  /** Return the position from 0 to 1, with values out of range at the ends; null for values without a position. */
  readonly place: (value: Value | undefined) => number | null;
  readonly ticks: readonly Tick[];
  readonly fields: number; // number of intervals in a heat map
}

const FIELDS = 8; // intervals of a numeric range; ranges with fewer integers are treated as choices
const WIDE = 10; // ratio of largest to smallest value above which a logarithmic axis is used
const TICKS = 5;
const FAR = 0.9; // fraction of the results that is always within the axis; far worse values may lie beyond

/** Return the scale of a hyperparameter, by its domain, else by the existing values. */
export function paramScale(name: string, space: Space, values: readonly Value[]): Scale {
  const domain = parameterOf(name, space)?.domain;
  if (domain?.type === 'choices') {
    return choiceScale(domain.values);
  }
  if (domain?.type === 'range') {
    const few = fewOf(domain);
    if (few) {
      return choiceScale(few);
    }
    return domain.scale === 'linear' ? linear(domain.low, domain.high) : logarithmic(domain.low, domain.high);
  }
  const numbers = values.filter(value => typeof value === 'number');
  return numbers.length === values.length && numbers.length > 0
    ? linear(Math.min(...numbers), Math.max(...numbers))
    : choiceScale([...new Map(values.map(value => [valueText(value), value])).values()]);
}

/** Return the parameter of a column; `blocks[2].kind` is the parameter `kind` of each of `blocks`. */
export function parameterOf(name: string, space: Space): Parameter | undefined {
  const [, list, inner] = /^(.*)\[\d+\]\.(.*)$/.exec(name) ?? [];
  return space.parameters.find(each => each.name === (inner ?? name) && each.each === (list ?? null));
}

/** Return all values of a range of integers or powers of two if there are at most FIELDS; else null. */
function fewOf({ low, high, whole, scale }: Range): number[] | null {
  const next = (value: number): number => (scale === 'log2' ? value * 2 : value + 1);
  if (!whole && scale !== 'log2') {
    return null;
  }
  const found: number[] = [];
  for (let value = scale === 'log2' ? 2 ** Math.ceil(Math.log2(low)) : low; value <= high; value = next(value)) {
    found.push(value);
    if (found.length > FIELDS) {
      return null;
    }
  }
  return found;
}

/**
 * Return the scale of a metric; a few values far worse than the rest are at its end, so that good ones stay
 * distinguishable.
 */
export function metricScale(values: readonly (Num | null)[], metric: Metric): Scale {
  const sign = metric.mode === 'max' ? -1 : 1;
  const finite = values.flatMap(value => (value === null || !Number.isFinite(num(value)) ? [] : [num(value)]));
  const sorted = finite.sort((one, other) => sign * (one - other));
  const [best, most, last] = [sorted[0], sorted[Math.floor((sorted.length - 1) * FAR)], sorted.at(-1)];
  if (best === undefined || most === undefined || last === undefined) {
    return { place: () => null, ticks: [], fields: FIELDS };
  }
  const worst = Math.abs(last - best) > 3 * Math.abs(most - best) && most !== best ? most : last;
  const [low, high] = [Math.min(best, worst), Math.max(best, worst)];
  const falls = metric.mode === 'min'; // metrics that rise to 1 need resolution at the upper end
  return falls && low > 0 && high / low > WIDE ? logarithmic(low, high, true) : linear(low, high, true);
}

export function linear(low: number, high: number, roomy = false): Scale {
  const room = (high - low || Math.abs(high) || 1) * (roomy ? 0.05 : 0);
  const [from, to] = low === high && !roomy ? [low - 0.5, high + 0.5] : [low - room, high + room];
  const step = niceStep((to - from) / TICKS);
  const first = Math.ceil(from / step - 1e-9);
  const count = Math.floor(to / step + 1e-9) - first + 1;
  const ticks = Array.from({ length: Math.max(0, count) }, (_, index) => (first + index) * step);
  return {
    place: value => clamped(value, amount => (amount - from) / (to - from)),
    ticks: ticks.map(value => ({ at: (value - from) / (to - from), text: tickText(value, step) })),
    fields: FIELDS
  };
}

export function logarithmic(low: number, high: number, roomy = false): Scale {
  const room = roomy ? (high / low) ** 0.05 : 1;
  const [from, to] = [Math.log(low / room), Math.log(high * room)];
  const ticks = logTicks((low / room) * (1 - 1e-12), high * room * (1 + 1e-12));
  return {
    place: value => clamped(value, amount => (amount > 0 ? (Math.log(amount) - from) / (to - from || 1) : 0)),
    ticks: ticks.map(value => ({ at: (Math.log(value) - from) / (to - from || 1), text: logTickText(value) })),
    fields: FIELDS
  };
}

/** Return a scale with each choice in the middle of its share. */
export function choiceScale(values: readonly Value[]): Scale {
  const places = new Map(values.map((value, index) => [key(value), (index + 0.5) / values.length]));
  return {
    place: value => (value === undefined ? null : (places.get(key(value)) ?? null)),
    ticks: values.map(value => ({ at: places.get(key(value)) ?? 0, text: valueText(value) })),
    fields: values.length
  };
}

/** Return the rank of each trial with a result: 1 for the best, 0 for the worst. */
export function ranks(rows: readonly TrialRow[], metric: Metric): Map<number, number> {
  const valued = bestRows(rows, metric);
  const last = Math.max(1, valued.length - 1);
  return new Map(valued.map(({ trial }, index) => [trial, 1 - index / last]));
}

/** Return a trial's colour, the stronger the better; null is the rank of a trial without a result. */
export function shade(rank: number | null): string {
  if (rank === null) {
    return 'var(--dl-line)';
  }
  return `color-mix(in oklab, var(--dl-best) ${Math.round(rank ** 1.5 * 100)}%, var(--dl-poor))`;
}

/** Format a trial's tooltip: `12.7  error 0.034  lr=0.003 width=64`. */
export function rowText(status: SearchStatus, row: TrialRow): string {
  const { metric, over } = status;
  const value = row.best === null ? (row.failure ?? trialWord(row.state, over)) : `${metric.name} ${number(row.best)}`;
  const params = Object.entries(row.params).map(([name, held]) => `${name}=${valueText(held)}`);
  return [`${status.number}.${row.trial}`, value, params.join(' ')].join('  ');
}

function clamped(value: Value | undefined, share: (amount: number) => number): number | null {
  return typeof value === 'number' ? Math.min(1, Math.max(0, share(value))) : null;
}

function niceStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5, 10].find(each => each * power >= rough * 0.999) ?? 10);
}

function key(value: Value): string {
  return JSON.stringify(value);
}
