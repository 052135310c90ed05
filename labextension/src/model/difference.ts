/** Differences between two experiments as rows of text, as `kernel_backend/text/compare.py` formats them. */

import type { Diff } from '../api/types';
import { num } from './curves';
import { number } from './text';

export interface DifferenceRow {
  readonly kind: string;
  readonly text: string;
  readonly detail: string; // lines of a diff, or file names
  readonly dim: boolean; // it cannot change a result
}

const LINES = 60; // lines of a detail
const NONE = 'none: code, data, environment, seed and configuration are the same';

/** Return a row for each possible cause, the likeliest first, for each unknown, and last for the results. */
export function differencesOf(diff: Diff): DifferenceRow[] {
  const causes = diff.differences.map(({ kind, text, detail, harmless }) => ({
    kind,
    text: harmless ? `${text} (changes no bit)` : text,
    detail: shortened(detail),
    dim: harmless
  }));
  const unknown = diff.unknown.map(text => row('not known', text));
  const none = causes.length + unknown.length === 0 ? [row('causes', NONE)] : [];
  const { text, metrics } = diff.results;
  const values = Object.entries(metrics).map(([name, both]) => `${name} ${both.map(valueText).join(' and ')}`);
  return [...causes, ...unknown, ...none, row('results', [text, ...values].join('; '))];
}

function row(kind: string, text: string): DifferenceRow {
  return { kind, text, detail: '', dim: false };
}

function valueText(value: unknown): string {
  return value === null ? 'none' : number(num(value as number));
}

function shortened(lines: readonly string[]): string {
  const left = lines.length - LINES;
  const more = left > 0 ? [`... ${left} ${left === 1 ? 'line' : 'lines'} more`] : [];
  return [...lines.slice(0, LINES), ...more].join('\n');
}
