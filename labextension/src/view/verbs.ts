/** Decide which actions on an experiment are possible. */

import { ended, isDeleted, stateOf } from '../model/overview';
import type { Look, Verb } from '../service/watch';

/** Return the actions that are possible in the current state. */
export function verbsFor(look: Look): Verb[] {
  const overview = look.overview;
  if (!overview || look.connection === 'gone' || look.connection === 'foreign') {
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
