/** Queries of the panel, and the intervals between them. No DOM, no clock. */

import type { Overview } from '../api/types';
import { ended, stateOf } from '../model/overview';
import type { Query } from '../service/source';

export const PAGE = 50; // experiments
const LONGEST_S = 15; // longest interval between requests
const SLOWER = 1.5;

export const MOST_COMPARED = 20; // experiments side by side
const LISTED = 4; // of these in the label of a tab

/** States that the filter chips select. */
export const STATES = ['running', 'queued', 'paused', 'completed', 'failed', 'stopped', 'deleted'] as const;

export interface Filter {
  readonly search: string;
  readonly state: string | null;
  readonly notebook: string | null; // path below JupyterLab's root
}

export const EVERYTHING: Filter = { search: '', state: null, notebook: null };

export function isNarrow(filter: Filter): boolean {
  return filter.search.trim() !== '' || filter.state !== null || filter.notebook !== null;
}

/** Return the query for a page: the newest experiments, or those with numbers below `before`. */
export function queryFor(filter: Filter, before: number | null = null): Query {
  const search = filter.search.trim();
  // The service has a notebook's absolute path, JupyterLab its path below the server's root, perhaps with a drive.
  const notebook = filter.notebook?.replace(/^[^/:]*:/, '');
  return {
    ...(search ? { search } : {}),
    ...(filter.state ? { state: filter.state } : {}),
    ...(notebook ? { notebook } : {}),
    ...(before === null ? {} : { before }),
    limit: PAGE
  };
}

/** Properties of an answer that determine the next interval. */
export interface Heard {
  failed: boolean;
  moved: boolean; // the answer differs from the previous one
  active: boolean;
}

/**
 * Return the seconds until the next request: `refreshSeconds` while experiments are active or change.
 *
 * After any other answer, or an error, the pause `before` is multiplied by SLOWER, up to LONGEST_S.
 */
export function nextPause(before: number, refreshSeconds: number, heard: Heard): number {
  if (!heard.failed && (heard.moved || heard.active)) {
    return refreshSeconds;
  }
  return Math.max(refreshSeconds, Math.min(before * SLOWER, LONGEST_S));
}

/** Return whether any of the experiments is at work: neither ended, queued nor paused. */
export function isActive(found: readonly Overview[]): boolean {
  return found.some(each => !ended(each) && !['queued', 'paused'].includes(stateOf(each)));
}

/** Return whether an answer differs from the previous one. */
export function hasMoved(before: readonly Overview[], found: readonly Overview[]): boolean {
  return before.length !== found.length || before[0]?.seq !== found[0]?.seq;
}

/** Return a label for experiments: all of few numbers, else the first ones and how many there are besides. */
export function numbersLabel(numbers: readonly number[]): string {
  const names = numbers.map(number => `#${number}`);
  const listed = names.length > LISTED ? names.slice(0, LISTED - 1) : names;
  const left = names.length - listed.length;
  return listed.join(' · ') + (left ? ` and ${left} more` : '');
}

/** Return the experiment numbers in a typed text: `12 15`, `#12, #15`. */
export function numbersIn(text: string): number[] {
  const found = text.match(/\d+/g) ?? [];
  return [...new Set(found.map(Number))].filter(number => number > 0 && number < 1e9);
}
