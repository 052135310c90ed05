/** How far a search is: its trials by what has become of them, and an estimate of the time left. No DOM, no clock. */

import type { SearchStatus, TrialState } from '../api/types';
import { num } from './curves';
import { approximately } from './text';
import { HOLDING, trialParts } from './trialparts';

const FEW = 3; // settled trials that make a pace
const LIVE: readonly TrialState[] = [...HOLDING, 'queued'];

/**
 * Return the seconds until a search has used up its trials, budget or time, whichever is first; null if it is unknown:
 * no trial holds slots, or fewer than FEW have come to rest, whose mean slot time is the pace.
 *
 * `slots` is the size of a gang. Trials that rest and are promoted later are not counted.
 */
export function searchSecondsLeft(status: SearchStatus, slots: number): number | null {
  const { counts, search, elapsed, spent, over } = status;
  const used = slots * HOLDING.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
  if (over || used === 0) {
    return null;
  }
  const byTrials = slotSecondsOfTrials(status);
  const known = [
    byTrials === null ? null : byTrials / used,
    search.budget === null ? null : (num(search.budget) - num(spent)) / used,
    search.max_time === null ? null : num(search.max_time) - num(elapsed)
  ].filter(seconds => seconds !== null);
  return known.length ? Math.max(0, Math.min(...known)) : null;
}

/** Return the slot-seconds that the trials to come, and those that train, will need; null if that is unknown. */
function slotSecondsOfTrials({ counts, limit, spent, trials }: SearchStatus): number | null {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const live = trials.filter(row => LIVE.includes(row.state)).map(row => num(row.seconds));
  const settled = total - live.length;
  if (limit === null || settled < FEW || num(spent) === 0) {
    return null;
  }
  const mean = (num(spent) - live.reduce((sum, seconds) => sum + seconds, 0)) / settled;
  const left = live.reduce((sum, seconds) => sum + Math.max(0, mean - seconds), 0);
  return Math.max(0, limit - total) * mean + left;
}

/** Format the trials and, unless `slots` is null, the time left: `8 stopped early · 3 running · 5 to come · about 12 min left`. */
export function searchProgressText(status: SearchStatus, slots: number | null): string {
  const left = slots === null ? null : searchSecondsLeft(status, slots);
  const estimate = left === null ? [] : [`about ${approximately(left)} left`];
  return [...trialParts(status).map(part => part.text), ...estimate].join(' \u00b7 ');
}
