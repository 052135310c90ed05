/** Select the trials of a search to display, as in `kernel_backend/model/views/shown_trials.py`. */

import type { Metric, Trial, TrialState } from '../api/types';
import { bestFirst } from './best';

export const MOST = 50; // up to this number of trials, all are displayed
const [BEST, TROUBLED] = [20, 5];
const LIVE: readonly TrialState[] = ['queued', 'starting', 'running', 'releasing', 'stopping'];

export type Counts = Partial<Record<TrialState, number>>;

/** Count the trials by state. */
export function countStates(trials: readonly Trial[]): Counts {
  const counts: Counts = {};
  for (const { state } of trials) {
    counts[state] = (counts[state] ?? 0) + 1;
  }
  return counts;
}

/** Return the indices of trials to display: active ones, the best, and the newest that failed or cannot be placed. */
export function lookedAt(trials: readonly Trial[], metric: Metric): Set<number> {
  const live = trials.filter(trial => LIVE.includes(trial.state));
  const troubled = trials.filter(trial => trial.failure || trial.holds.includes('engine'));
  troubled.sort((one, other) => last(one) - last(other) || one.index - other.index);
  const best = bestFirst(trials, metric).slice(0, BEST);
  return new Set([...live, ...best, ...troubled.slice(-TROUBLED)].map(trial => trial.index));
}

function last(trial: Trial): number {
  return trial.state === 'failed' ? 0 : 1;
}
