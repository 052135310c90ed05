/** Decide which actions on an experiment are possible. */

import { ended, isDeleted, stateOf } from '../model/overview';
import type { Look, Verb } from '../service/watch';

/** Return whether the service has the experiment that is looked at, as far as is known. */
export function isThere({ overview, connection }: Pick<Look, 'overview' | 'connection'>): boolean {
  return overview !== null && connection !== 'gone' && connection !== 'foreign';
}

/** Return the actions that are possible in the current state. */
export function verbsFor(look: Pick<Look, 'overview' | 'connection'>): Verb[] {
  const overview = look.overview;
  if (!overview || !isThere(look)) {
    return [];
  }
  if (ended(overview)) {
    return [isDeleted(overview) ? 'undelete' : 'delete'];
  }
  switch (stateOf(overview)) {
    case 'paused':
      return ['resume', 'stop'];
    case 'queued':
    case 'starting':
    case 'running':
      return ['pause', 'stop'];
    case 'releasing':
      return ['stop'];
    default:
      return [];
  }
}
