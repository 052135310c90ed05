/** Pools to which an experiment can be moved. */

import type { PoolStatus } from '../api/types';

export interface PoolChoice {
  readonly name: string;
  readonly text: string;
  readonly problem: string; // why it cannot be used now; '' if it can
}

/**
 * Return the pools that an experiment can be moved to: all but its own. `named` is the pool of its configuration, several
 * with commas between them (each of which it can be moved to), or null for the service's default pool.
 */
export function choicesOf(pools: readonly PoolStatus[], named: string | null): PoolChoice[] {
  const others = pools.filter(pool => (named === null ? !pool.default : pool.name !== named));
  return others.map(pool => ({ name: pool.name, text: `${pool.name}: ${use(pool)}`, problem: pool.problem }));
}

function use(pool: PoolStatus): string {
  if (pool.problem) {
    return 'cannot be used now';
  }
  // A site's own queue gives slots to others as well, of which Daylight does not know.
  const slots = pool.places
    ? `${Math.max(0, pool.slots - pool.used)} of ${pool.slots} slots free`
    : `${pool.slots} slots`;
  return pool.waiting > 0 ? `${slots}, ${pool.waiting} waiting` : slots;
}
