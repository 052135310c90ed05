/** Convert slot use over time to the columns of a plot: slots held, limit and guarantee. */

import type { UseOverTime } from '../api/types';

export const SPANS = [
  ['1 d', 86400],
  ['7 d', 7 * 86400],
  ['30 d', 30 * 86400]
] as const;

export interface Lines {
  readonly at: number[];
  readonly held: number[];
  readonly limit: (number | null)[];
  readonly guarantee: (number | null)[];
  readonly most: number; // the end of the axis
}

/** Return the lines of the plot; they have one time more than values, since the last value holds until the end. */
export function linesOf({ at, held, quota }: UseOverTime): Lines {
  const last = held.at(-1) ?? 0;
  const most = Math.max(1, quota.limit ?? 0, quota.guarantee, ...held);
  return {
    at,
    held: [...held, last],
    limit: at.map(() => quota.limit),
    guarantee: at.map(() => quota.guarantee || null),
    most: Math.ceil(most * 1.05)
  };
}

/** Describe the use in a sentence. */
export function useText({ at, held, quota }: UseOverTime): string {
  const spans = held.map((_, index) => (at[index + 1] ?? 0) - (at[index] ?? 0));
  const whole = spans.reduce((sum, each) => sum + each, 0);
  const used = held.reduce((sum, each, index) => sum + each * (spans[index] ?? 0), 0);
  const mean = whole > 0 ? used / whole : 0;
  const most = Math.max(0, ...held);
  const limit = quota.limit === null ? 'no limit' : `the limit is ${quota.limit}`;
  return `${rounded(mean)} slots on the average, ${rounded(most)} at most; ${limit}; ${rounded(used / 3600)} slot-hours`;
}

function rounded(value: number): string {
  return String(value < 10 ? Math.round(value * 10) / 10 : Math.round(value));
}
