/** Shares of a training's time by part, with the same names and texts as in Python. */

import type { Split, Times } from '../api/types';

export const PARTS = [
  'data',
  'input',
  'transfer',
  'forward',
  'backward',
  'communication',
  'optimizer',
  'checkpoint',
  'validation',
  'stall'
] as const;

export type Part = (typeof PARTS)[number];

/** Labels of parts that are not called as in the service. */
const LABELS: Partial<Record<Part, string>> = {
  data: 'waiting for data',
  input: 'waiting for input',
  transfer: 'copy to the device',
  stall: 'other'
};

/** A bar: its name, and the fraction of each part, from 0 to 1, in the order of `PARTS`. */
export interface Bar {
  readonly name: string;
  readonly shares: ReadonlyMap<Part, number>;
}

/**
 * Return the bars of a training: the last minute if it runs, the whole run, and each rank if there are several.
 *
 * The view shows the first one always, and the others on request.
 */
export function barsOf(times: Times): Bar[] {
  const whole = { name: 'whole run', shares: sharesOf(times.whole) };
  const minute = { name: 'last minute', shares: sharesOf(times.minute) };
  const ranks = times.ranks.map(each => ({
    name: `rank ${each.rank}`,
    shares: sharesOf(times.live ? each.minute : each.whole)
  }));
  const bars = times.live && minute.shares.size > 0 ? [minute, whole] : [whole];
  return [...bars, ...(ranks.length > 1 ? ranks : [])].filter(bar => bar.shares.size > 0);
}

export function sharesOf(split: Split): Map<Part, number> {
  const parts: Partial<Record<string, number>> = split.parts;
  const seconds = PARTS.reduce((sum, part) => sum + (parts[part] ?? 0), 0);
  const found = PARTS.map(part => [part, (parts[part] ?? 0) / (seconds || 1)] as const);
  return new Map(found.filter(([, share]) => share > 0));
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(0)} %`;
}

/** Return the parts of at least half a percent, with their shares as text. */
export function partTexts(bar: Bar): Map<Part, string> {
  const shown = [...bar.shares].filter(([, share]) => share >= 0.005);
  return new Map(shown.map(([part, share]) => [part, `${LABELS[part] ?? part} ${percent(share)}`]));
}
