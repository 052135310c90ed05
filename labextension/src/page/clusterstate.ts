/** Cluster state of the page, and how answers change it: pure functions, no DOM, no clock. */

import type { Account, AuditEntry, DiskReport, NodeUse, Overview, PoolStatus, Self, Waiting } from '../api/types';
import type { ServiceError } from '../service/source';

/** Views of the page; only the data that the current view needs is requested. */
export const VIEWS = ['cluster', 'accounts', 'audit'] as const;
export type View = (typeof VIEWS)[number];

export interface ClusterSnapshot {
  readonly at: number; // time of the answer, in seconds since the epoch; 0 before the first
  readonly error: ServiceError | null; // error of the last request
  readonly me: Self | null;
  readonly experiments: readonly Overview[]; // running and waiting ones, newest first
  readonly queue: readonly Waiting[];
  readonly nodes: readonly NodeUse[];
  readonly pools: readonly PoolStatus[];
  readonly disk: DiskReport | null; // of the user's own files
  readonly accounts: readonly Account[] | null;
  readonly audit: readonly AuditEntry[] | null; // newest first
  readonly auditOf: string; // the search to which `audit` belongs
  readonly auditEnds: boolean; // whether the log has no entries older than these
}

export const NOTHING: ClusterSnapshot = {
  at: 0,
  error: null,
  me: null,
  experiments: [],
  queue: [],
  nodes: [],
  pools: [],
  disk: null,
  accounts: null,
  audit: null,
  auditOf: '',
  auditEnds: false
};

/** Merge a new answer, and clear the last error. */
export function learnt(snapshot: ClusterSnapshot, found: Partial<ClusterSnapshot>, at: number): ClusterSnapshot {
  return { ...snapshot, ...found, at, error: null };
}

/** Record a failed request: the last numbers stay, and are marked as old. */
export function failed(snapshot: ClusterSnapshot, error: ServiceError): ClusterSnapshot {
  return { ...snapshot, error };
}

/** Replace an account by that of an answer, wherever it is shown. */
export function withAccount(snapshot: ClusterSnapshot, account: Account): ClusterSnapshot {
  const replaced = (each: Account): Account =>
    each.kind === account.kind && each.name === account.name ? account : each;
  return {
    ...snapshot,
    me: snapshot.me && { ...snapshot.me, accounts: snapshot.me.accounts.map(replaced) },
    accounts: snapshot.accounts?.map(replaced) ?? null
  };
}

export function withNode(snapshot: ClusterSnapshot, node: NodeUse): ClusterSnapshot {
  return { ...snapshot, nodes: snapshot.nodes.map(each => (each.name === node.name ? node : each)) };
}

/**
 * Merge the newest audit entries with those already loaded; replace these if entries in between are missing, or if the
 * search has changed.
 */
export function withEntries(
  snapshot: ClusterSnapshot,
  newest: readonly AuditEntry[],
  page: number,
  search = ''
): ClusterSnapshot {
  const before = snapshot.auditOf === search ? (snapshot.audit ?? []) : [];
  const oldest = newest.at(-1)?.seq ?? 0;
  const joins = before.length > 0 && (before[0]?.seq ?? 0) >= oldest;
  const kept = joins ? before.filter(each => each.seq < oldest) : [];
  return {
    ...snapshot,
    audit: [...newest, ...kept],
    auditOf: search,
    auditEnds: joins ? snapshot.auditEnds : newest.length < page
  };
}

/** Append older audit entries. */
export function withOlderEntries(
  snapshot: ClusterSnapshot,
  older: readonly AuditEntry[],
  page: number
): ClusterSnapshot {
  const last = snapshot.audit?.at(-1)?.seq ?? Infinity;
  const fresh = older.filter(each => each.seq < last);
  return { ...snapshot, audit: [...(snapshot.audit ?? []), ...fresh], auditEnds: older.length < page };
}

export function isView(name: string): name is View {
  return (VIEWS as readonly string[]).includes(name);
}
