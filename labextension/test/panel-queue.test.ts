/** What the panel tells of the queue and of the quotas of its user. */

import type { Account, Self, Waiting } from '../src/api/types';
import { ownWaits, queueText, quotaUses } from '../src/panel/waiting';
import type { Queue } from '../src/panel/waiting';

const WAIT = { reason: 'the slots are in use', place: 2, starts: false, estimate: 720, earliest: null, latest: null };

function waiting(fields: Partial<Waiting>): Waiting {
  const what = { experiment: null, trial: null, name: null, wait: null, by_admin: false };
  return {
    pool: 'local',
    place: 1,
    slots: 2,
    queued_at: 0,
    priority: 0,
    owner: '',
    group: 'vision',
    ...what,
    ...fields
  };
}

function account(kind: Account['kind'], name: string, quota: Partial<Account['quota']>, held: number): Account {
  const none = { weight: 1, guarantee: 0, limit: null, slot_hours: null, max_slots_per_trial: null };
  const whole = { ...none, priority: 0, storage: null, ...quota };
  return {
    kind,
    name,
    quota: whole,
    given: null,
    changed: {},
    members: [],
    warnings: [],
    use: { held, window: 3600 }
  } as unknown as Account;
}

function queue(rows: Waiting[], accounts: Account[] = []): Queue {
  return { waiting: rows, me: { person: { name: 'dave' }, accounts, servers: [] } as unknown as Self };
}

const own = waiting({ place: 2, owner: 'dave', experiment: 12, trial: 1, name: 'digits', wait: WAIT });

test('own requests have their place, what they ask for, and why they wait', () => {
  expect(ownWaits(queue([waiting({}), own]))).toEqual([
    { experiment: 12, text: '2. #12 digits, 2 slots, about 12 min', reason: 'the slots are in use' }
  ]);
});

test('all that wait are counted', () => {
  expect(queueText(queue([]))).toBe('nobody waits');
  expect(queueText(queue([own]))).toBe('1 waits: all yours');
  expect(queueText(queue([waiting({}), own]))).toBe('2 wait: 1 of yours');
  expect(queueText(queue([waiting({})]))).toBe('1 waits: none of yours');
});

test('quotas are those of the user and of the groups, with slot-hours where they are limited', () => {
  const hours = { hours: 2, window: 86400 };
  const accounts = [
    account('user', 'dave', { limit: 8, guarantee: 2 }, 4),
    account('group', 'vision', { slot_hours: hours }, 6)
  ];
  expect(quotaUses(queue([], accounts))).toEqual([
    { name: 'you', text: '4 of 8 slots, 2 guaranteed', part: 0.5 },
    { name: 'vision', text: '6 slots', part: null },
    { name: 'vision', text: '1 of 2 slot-hours in 1 d', part: 0.5 }
  ]);
});

test('a request that waits in several pools is listed in each, with the pool', () => {
  const there = { ...own, pool: 'cloud', place: 1, wait: { ...WAIT, reason: 'no node has 2 free', estimate: null } };
  expect(ownWaits(queue([there, own])).map(({ text, reason }) => [text, reason])).toEqual([
    ['cloud 1. #12 digits, 2 slots', 'no node has 2 free'],
    ['local 2. #12 digits, 2 slots, about 12 min', 'the slots are in use']
  ]);
});
