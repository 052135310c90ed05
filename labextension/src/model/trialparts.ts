/** Trials of a search by what has become of them, in the order of its bar. No DOM. */

import type { Overview, SearchStatus, TrialState } from '../api/types';
import { countsOf, ended } from './overview';
import { limitOf } from './text';

export type PartKind = 'done' | 'early' | 'failed' | 'running' | 'held' | 'to-come';

/** Number of trials of one kind, with its words for users: `8 stopped early`. */
export interface TrialPart {
  readonly kind: PartKind;
  readonly count: number;
  readonly text: string;
}

/** States of trials that hold slots. */
export const HOLDING: readonly TrialState[] = ['running', 'starting', 'releasing', 'stopping'];

/** Return the trials of a search as its bar in a list of experiments shows them. */
export function partsOf(overview: Overview): TrialPart[] {
  const { search } = overview.experiment.config;
  const limit = search && limitOf(search, overview);
  return trialParts({ counts: countsOf(overview), limit, over: ended(overview) });
}

/** Return the trials by kind, in the order of the bar, without kinds of no trial. */
export function trialParts({ counts, limit, over }: Pick<SearchStatus, 'counts' | 'limit' | 'over'>): TrialPart[] {
  const of = (...states: TrialState[]): number => states.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const parts: [PartKind, number, string][] = [
    ['early', of('pruned', 'stopped') + (over ? of('paused') : 0), 'stopped early'],
    ['failed', of('failed'), 'failed'],
    ['done', of('completed'), 'done'],
    ['running', of(...HOLDING), 'running'],
    ['held', of('queued') + (over ? 0 : of('paused')), 'may go on'],
    ['to-come', over || limit === null ? 0 : Math.max(0, limit - total), 'to come']
  ];
  return parts
    .filter(([, count]) => count > 0)
    .map(([kind, count, word]) => ({ kind, count, text: `${count} ${word}` }));
}
