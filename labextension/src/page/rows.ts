/** Long lists: search, sort and pages. */

import type { Account, AuditEntry, NodeRun, NodeUse, Waiting } from '../api/types';
import { plural } from './fields';
import { dayText, approximately } from './text';

export const PAGE = 50; // rows

export type Order = 'name' | 'held' | 'limit' | 'guarantee';

export interface Look {
  readonly search: string;
  readonly kind: Account['kind'] | null;
  readonly changed: boolean; // show only accounts with numbers that were set in this service
  readonly order: Order;
  readonly down: boolean;
  readonly page: number; // from 0
}

export const ALL: Look = { search: '', kind: null, changed: false, order: 'name', down: false, page: 0 };

export interface Page<Row> {
  readonly rows: readonly Row[];
  readonly first: number; // number of the first row, from 1; 0 if there is none
  readonly of: number;
  readonly page: number; // displayed page; the last one if there are fewer
  readonly pages: number;
}

/** Return the page `look.page` of the accounts that match the search and filters in `look`, in its order. */
export function pageOf(accounts: readonly Account[], look: Look): Page<Account> {
  const found = accounts.filter(each => matches(each, look)).sort(by(look));
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  const page = Math.min(look.page, pages - 1);
  const rows = found.slice(page * PAGE, (page + 1) * PAGE);
  return { rows, first: rows.length ? page * PAGE + 1 : 0, of: found.length, page, pages };
}

function matches(account: Account, { search, kind, changed }: Look): boolean {
  const words = search.trim().toLowerCase();
  return (
    (kind === null || account.kind === kind) &&
    (!changed || Object.keys(account.changed).length > 0) &&
    (words === '' || [account.name, ...account.members].some(each => each.toLowerCase().includes(words)))
  );
}

function by({ order, down }: Look): (one: Account, other: Account) => number {
  const turn = down ? -1 : 1;
  return (one, other) => turn * compared(one, other, order) || names(one, other);
}

function compared(one: Account, other: Account, order: Order): number {
  switch (order) {
    case 'name':
      return names(one, other);
    case 'held':
      return one.use.held - other.use.held;
    case 'limit':
      return Math.sign((one.quota.limit ?? 1e9) - (other.quota.limit ?? 1e9));
    case 'guarantee':
      return one.quota.guarantee - other.quota.guarantee;
  }
}

const COLLATOR = /* @__PURE__ */ new Intl.Collator('en', { numeric: true });

/** Compare accounts: groups before users, then names with numbers in numeric order (`u2` before `u10`). */
function names(one: Account, other: Account): number {
  return Number(one.kind === 'user') - Number(other.kind === 'user') || COLLATOR.compare(one.name, other.name);
}

/** Return the audit entries that contain all of these words. */
export function entriesWith(entries: readonly AuditEntry[], search: string): readonly AuditEntry[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (entry: AuditEntry): string => `${entry.who} ${entry.act} ${entry.on} ${entry.detail}`.toLowerCase();
  return words.length ? entries.filter(entry => words.every(word => text(entry).includes(word))) : entries;
}

/** Format an owner: `ada`, or `a user of vision` if the owner is hidden from this user. */
export function personText(owner: string, group: string): string {
  return owner || (group ? `a user of ${group}` : 'another user');
}

const FIRST = 1_000_000; // priorities from here on are those of the head of the queue

export function isFirst(priority: number): boolean {
  return priority >= FIRST;
}

export function priorityText(priority: number): string {
  return isFirst(priority) ? 'first' : String(priority);
}

/** Format the requested experiment or trial: `#12 digits`, `#12.3 digits`; "" if it is hidden from this user. */
export function whatOf({ experiment, trial, name }: Waiting): string {
  if (experiment === null) {
    return '';
  }
  const number = trial === null || trial === 1 ? `#${experiment}` : `#${experiment}.${trial}`;
  return name ? `${number} ${name}` : number;
}

/** Format what holds slots: `#12.3 ada, 4 slots`, or `a user of vision, 4 slots` if it is hidden from this user. */
export function runText(run: NodeRun, now: number): string {
  const { experiment, trial, server, outside } = run;
  const number = experiment === null ? '' : `#${experiment}${trial === null || trial === 1 ? '' : `.${trial}`} `;
  const what = server === null ? '' : `: notebook server ${server.slice(server.lastIndexOf('/') + 1)}`.trimEnd();
  const slots = `${run.slots} ${plural(run.slots, 'slot')}`;
  if (outside) {
    return `${outside}, ${slots}`;
  }
  return `${number}${personText(run.owner, run.group)}${what}, ${slots}${idleText(run, now)}`;
}

/** Format the idle time of a gang or a notebook server, and when its slots are reclaimed if it stays idle. */
function idleText({ last_activity, take_back_at }: NodeRun, now: number): string {
  const idle =
    last_activity === null || now - last_activity < 60 ? '' : `, idle for ${approximately(now - last_activity)}`;
  const back =
    take_back_at === null ? '' : `; if nothing is done there it may be stopped from ${dayText(take_back_at)} on`;
  return idle + back;
}

/** Return the state of a node, and the state whose colours it is shown in. */
export function nodeState({ healthy, drained, suspicion }: NodeUse): [string, string] {
  if (drained) {
    return ['drained', 'paused'];
  }
  if (!healthy) {
    return ['does not answer', 'failed'];
  }
  return suspicion?.left_out ? ['suspect', 'failed'] : ['ready', 'completed'];
}

/** Return why a node is out of use: its engine's reason, and why it is suspect. */
export function nodeReasons({ reason, suspicion }: NodeUse, now: number): string[] {
  if (!suspicion) {
    return reason ? [reason] : [];
  }
  const left = approximately(Math.max(0, suspicion.until - now));
  const used = suspicion.left_out ? 'left out' : 'suspect, but used as half of its pool is left out,';
  return [...(reason ? [reason] : []), `${suspicion.reason}; ${used} for ${left} more`];
}
