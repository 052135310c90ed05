/** Fields of a quota as text that users read and type. */

import type { Account, Quota, SlotHours } from '../api/types';
import { num } from '../model/curves';

export type FieldName = keyof Quota;

export interface Field {
  readonly name: FieldName;
  readonly title: string;
  readonly hint: string; // description of the field
  readonly width: number; // characters of its input
}

export const FIELDS: readonly Field[] = [
  {
    name: 'guarantee',
    title: 'Guarantee',
    hint: 'slots guaranteed to them, which others may use while they do not need them',
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

/** Quota with the value of each field that nobody has set. */
const UNSET: Quota = {
  weight: 1,
  guarantee: 0,
  limit: null,
  slot_hours: null,
  max_slots_per_trial: null,
  priority: 0,
  storage: null
};

/** Format slot-hours: `500/7d`, as the service parses them. */
export function slotHoursText({ hours, window }: SlotHours): string {
  const [seconds, unit] = window % 86400 === 0 ? [86400, 'd'] : [3600, 'h'];
  return `${short(hours)}/${short(window / seconds)}${unit}`;
}

/** Format a number of bytes: `500GB`, as the service parses it. */
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

/** Text for no limit, which overrides the hub's value; users type it, and the service parses it. */
export const NONE = 'none';

/** Format a field for a table and as the initial text of an input. */
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

/** Convert a typed text to the value to send, which the service validates; an empty text restores the hub's value. */
export function typedValue(text: string): number | string | null {
  const typed = text.trim();
  if (typed === '') {
    return null;
  }
  return /^-?\d+(\.\d+)?$/.test(typed) ? Number(typed) : typed;
}

/** Format the hub's value of a field; without one, the default for all users. */
export function givenText(account: Account, name: FieldName): string {
  return fieldText(account.given ?? UNSET, name);
}

/** Return whether a field was set in this service, overriding the hub. */
export function isChanged(account: Account, name: FieldName): boolean {
  return name in account.changed;
}

/** Format the slots that an account holds and its limit: `4 of 8 slots`, `4 slots`. */
export function heldText(account: Account): string {
  const { limit } = account.quota;
  const { held } = account.use;
  return limit === null ? `${held} ${plural(held, 'slot')}` : `${held} of ${limit} ${plural(limit, 'slot')}`;
}

/** Format used slot-hours: `310 of 500 slot-hours in 7 d`; "" without such a quota. */
export function windowText({ quota, use }: Account): string {
  if (quota.slot_hours === null) {
    return '';
  }
  const { hours, window } = quota.slot_hours;
  const used = hoursText((use.window ?? 0) / 3600);
  return `${used} of ${short(hours)} slot-hours in ${window % 86400 ? `${short(window / 3600)} h` : `${window / 86400} d`}`;
}

/** Return the used fraction of a quantity, from 0 to 1; for a quantity of 0, 1 if anything is used, else 0. */
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
