/** The queue and the user's quotas as the panel shows them. No DOM, no clock. */

import type { Account, Self, Waiting } from '../api/types';
import { heldText, partOf, plural, windowText } from '../page/fields';
import { whatOf } from '../page/rows';
import { estimateText } from '../page/text';

/** What waits, and the user with their accounts. */
export interface Queue {
  readonly waiting: readonly Waiting[];
  readonly me: Self;
}

/** Request of the user: which experiment, and why and how long it waits. */
export interface OwnWait {
  readonly experiment: number;
  readonly text: string;
  readonly reason: string;
}

/** Use of one quota; `part` is the used fraction, null without a limit. */
export interface QuotaUse {
  readonly name: string;
  readonly text: string;
  readonly part: number | null;
}

/** Return the user's own requests in the order of the queue; with several pools, once in each where they wait. */
export function ownWaits({ waiting, me }: Queue): OwnWait[] {
  const several = new Set(waiting.map(each => each.pool)).size > 1;
  return waiting.flatMap(request => {
    const { experiment, owner, place, slots, wait } = request;
    if (experiment === null || owner !== me.person.name) {
      return [];
    }
    const estimate = wait?.estimate == null ? '' : `, ${estimateText(wait)}`;
    const text = `${several ? `${request.pool} ` : ''}${place}. ${whatOf(request)}, ${slots} ${plural(slots, 'slot')}${estimate}`;
    return [{ experiment, text, reason: wait?.reason ?? '' }];
  });
}

/** Format how many requests wait: `nobody waits`, `3 wait: 1 of yours`. */
export function queueText(queue: Queue): string {
  const count = queue.waiting.length;
  if (count === 0) {
    return 'nobody waits';
  }
  const own = queue.waiting.filter(each => each.owner === queue.me.person.name).length;
  const whose = own === count ? 'all yours' : own ? `${own} of yours` : 'none of yours';
  return `${count} ${count === 1 ? 'waits' : 'wait'}: ${whose}`;
}

/** Return the use of the user's own quota, and of those of their groups. */
export function quotaUses({ me }: Queue): QuotaUse[] {
  return me.accounts.flatMap(account => {
    const name = account.kind === 'user' ? 'you' : account.name;
    const { limit, slot_hours: hours } = account.quota;
    const held = limit === null ? null : partOf(account.use.held, limit);
    const slots = { name, text: `${heldText(account)}${guaranteed(account)}`, part: held };
    return hours === null ? [slots] : [slots, { name, text: windowText(account), part: spent(account, hours.hours) }];
  });
}

function guaranteed({ quota }: Account): string {
  return quota.guarantee > 0 ? `, ${quota.guarantee} guaranteed` : '';
}

function spent({ use }: Account, hours: number): number {
  return partOf(use.window ?? 0, 3600 * hours);
}
