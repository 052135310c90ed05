/** The numbers of a quota as a person reads and writes them. */

import type { Account, Quota, SlotHours } from '../api/types';
import { num } from '../model/curves';

export type FieldName = keyof Quota;

export interface Field {
  readonly name: FieldName;
  readonly title: string;
  readonly hint: string; // what it means
  readonly width: number; // characters of its input
}

export const FIELDS: readonly Field[] = [
  {
    name: 'guarantee',
    title: 'Guarantee',
    hint: 'slots that are theirs on demand; borrowed by others while they want none',
    width: 5
  },
  { name: 'limit', title: 'Limit', hint: 'the most slots they may hold', width: 5 },
  {
    name: 'slot_hours',
    title: 'Slot-hours',
    hint: 'hours of one slot within a window: 500/7d, 40/12h or 2000/4w',
    width: 8
  },
  { name: 'weight', title: 'Weight', hint: 'of two that both want more, one of weight 2 gets twice as much', width: 5 },
  { name: 'priority', title: 'Priority', hint: 'the highest that they may request', width: 5 },
  { name: 'max_slots_per_trial', title: 'Per trial', hint: 'the most slots of one trial', width: 5 },
  { name: 'storage', title: 'Storage', hint: 'the most on disk: 200MB, 500GB or 2TB', width: 8 }
];

/** What a field is where nobody says anything. */
const UNSET: Quota = {
  weight: 1,
  guarantee: 0,
  limit: null,
  slot_hours: null,
  max_slots_per_trial: null,
  priority: 0,
  storage: null
};

/** `500/7d`; the inverse of what the service reads. */
export function slotHoursText({ hours, window }: SlotHours): string {
  const [seconds, unit] = window % 86400 === 0 ? [86400, 'd'] : [3600, 'h'];
  return `${short(hours)}/${short(window / seconds)}${unit}`;
}

/** `500GB`; the inverse of what the service reads. */
export function sizeWord(count: number): string {
  const [unit, bytes] = SIZES.find(([, each]) => count % each === 0) ?? ['', 1];
  return `${count / bytes}${unit}`;
}

const SIZES: readonly (readonly [string, number])[] = [
  ['TB', 1e12],
  ['GB', 1e9],
  ['MB', 1e6],
  ['kB', 1e3]
];

/** No limit, whatever the hub says; a person types it, and the service reads it. */
export const NONE = 'none';

/** A field as it stands in a table, and as an input begins. */
export function fieldText(quota: Quota, name: FieldName): string {
  const value = quota[name];
  if (value === null) {
    return NONE;
  }
  if (name === 'storage' && typeof value === 'number') {
    return sizeWord(value);
  }
  return typeof value === 'object' ? slotHoursText(value) : short(num(value));
}

/** What the service is sent for what was typed; it judges all else. Nothing typed: back to the hub's. */
export function typedValue(text: string): number | string | null {
  const typed = text.trim();
  if (typed === '') {
    return null;
  }
  return /^-?\d+(\.\d+)?$/.test(typed) ? Number(typed) : typed;
}

/** What the hub says of a field; where it says nothing, what holds for everybody. */
export function givenText(account: Account, name: FieldName): string {
  return fieldText(account.given ?? UNSET, name);
}

/** Whether a field was set here, against the hub. */
export function isChanged(account: Account, name: FieldName): boolean {
  return name in account.changed;
}

/** `4 of 8 slots`, `4 slots`: held, of what may be held. */
export function heldText(account: Account): string {
  const { limit } = account.quota;
  const { held } = account.use;
  return limit === null ? `${held} ${plural(held, 'slot')}` : `${held} of ${limit} ${plural(limit, 'slot')}`;
}

/** `310 of 500 slot-hours in 7 d`; empty where there is no such window. */
export function windowText({ quota, use }: Account): string {
  if (quota.slot_hours === null) {
    return '';
  }
  const { hours, window } = quota.slot_hours;
  const used = hoursText((use.window ?? 0) / 3600);
  return `${used} of ${short(hours)} slot-hours in ${window % 86400 ? `${short(window / 3600)} h` : `${window / 86400} d`}`;
}

/** How much of a whole is used, from 0 to 1; 0 of nothing is all of it only where something is used. */
export function partOf(used: number, whole: number): number {
  return whole > 0 ? Math.min(used / whole, 1) : Number(used > 0);
}

function hoursText(hours: number): string {
  return hours < 10 ? short(Math.round(hours * 10) / 10) : String(Math.round(hours));
}

function short(value: number): string {
  return String(Number(value.toFixed(3)));
}

export function plural(count: number, word: string): string {
  return count === 1 ? word : `${word}s`;
}
