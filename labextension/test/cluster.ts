/** Records of a shared cluster, for tests of the page. */

import type { Account, AuditEntry, Waiting } from '../src/api/types';

export function account(change: Partial<Account> = {}): Account {
  return {
    kind: 'user',
    name: 'ada',
    quota: {
      weight: 1,
      guarantee: 0,
      limit: null,
      slot_hours: null,
      max_slots_per_trial: null,
      priority: 0,
      storage: null
    },
    given: null,
    changed: {},
    use: { held: 0, decayed: 0, window: null },
    members: [],
    warnings: [],
    ...change
  };
}

export function waiting(change: Partial<Waiting> = {}): Waiting {
  return {
    pool: 'local',
    place: 1,
    slots: 2,
    queued_at: 0,
    priority: 0,
    owner: 'ada',
    group: 'vision',
    experiment: 12,
    trial: 1,
    name: 'digits',
    wait: null,
    by_admin: false,
    ...change
  };
}

export function entry(change: Partial<AuditEntry> = {}): AuditEntry {
  return { seq: 1, at: 0, who: 'ada', act: 'quota', on: 'user bob', detail: 'limit 8 -> 4', ...change };
}
