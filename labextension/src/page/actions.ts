/** Actions of users on this page, as requests: each has the text shown afterwards, and the action that undoes it. */

import type { Account, NodeUse, Overview, Quota, Waiting } from '../api/types';
import { FIELDS, fieldText, type FieldName, NONE } from './fields';
import type { ClusterSnapshot } from './clusterstate';
import { withAccount, withNode } from './clusterstate';
import { priorityText } from './rows';
import type { Method } from './source';

export interface Act {
  readonly method: Method;
  readonly path: string;
  readonly body?: unknown;
  /** Return the sentence that is shown when the action has succeeded. */
  said(answer: unknown): string;
  /** Apply the answer to the page's state, before the state is polled again. */
  fold(snapshot: ClusterSnapshot, answer: unknown): ClusterSnapshot;
  readonly undo: Act | null;
  /** Return the action that undoes this one, if the answer determines it. */
  undoneBy?(answer: unknown): Act | null;
}

/** Set one number of a quota; null restores the hub's value. */
export function setQuota(account: Account, name: FieldName, value: unknown): Act {
  const title = FIELDS.find(each => each.name === name)?.title ?? name;
  const before = fieldText(account.quota, name);
  return {
    ...putQuota(account, { [name]: value }),
    said: answer => `${title} of ${nameOf(account)}: ${fieldText((answer as Account).quota, name)}, it was ${before}`,
    undo: restoreQuota(account)
  };
}

/** Restore all of the hub's values of a quota. */
export function clearQuota(account: Account): Act {
  return {
    method: 'DELETE',
    path: pathOf(account),
    said: () => `${nameOf(account)}: all numbers are the hub's`,
    fold: (snapshot, answer) => withAccount(snapshot, answer as Account),
    undo: restoreQuota(account)
  };
}

/** Restore an earlier quota: the fields that were set in this service, and the hub's values for the others. */
function restoreQuota(account: Account): Act {
  const body = Object.fromEntries(FIELDS.map(({ name }) => [name, wireValue(account, name)]));
  return { ...putQuota(account, body), said: () => `${nameOf(account)}: as it was`, undo: null };
}

/**
 * Return the value to send to keep a field as it is: null for the hub's value, `none` for no limit whatever the hub's
 * value.
 */
function wireValue({ changed }: Account, name: FieldName): unknown {
  return name in changed ? (changed[name] ?? NONE) : null;
}

function putQuota(account: Account, body: Partial<Record<keyof Quota, unknown>>): Omit<Act, 'said' | 'undo'> {
  return {
    method: 'PUT',
    path: pathOf(account),
    body,
    fold: (snapshot, answer) => withAccount(snapshot, answer as Account)
  };
}

/** Drain a node, so that nothing new starts on it, or undrain it. */
export function drain(node: NodeUse, drained: boolean): Act {
  return {
    ...drainOnly(node, drained),
    undo: drainOnly(node, !drained)
  };
}

/** Forget why a node is suspect, so that new work starts there again. */
export function trust(node: NodeUse): Act {
  return { ...drainOnly(node, false), said: () => `${node.name} is trusted again: new work starts there` };
}

function drainOnly({ name }: NodeUse, drained: boolean): Act {
  return {
    method: 'POST',
    path: `/nodes/${encodeURIComponent(name)}/${drained ? 'drain' : 'undrain'}`,
    said: () => (drained ? `${name} is drained: nothing new starts there` : `${name} takes new work again`),
    fold: (snapshot, answer) => withNode(snapshot, answer as NodeUse),
    undo: null
  };
}

/** Set the priority of an experiment. An owner can lower a priority that an admin has set, but not raise it again. */
export function setPriority(row: Waiting, experiment: number, priority: number | string, admin: boolean): Act {
  const said = (): string => `Priority of #${experiment}: ${priority}, it was ${priorityText(row.priority)}`;
  return {
    ...ordered(experiment, priority, said),
    undoneBy: answer => {
      const given = (answer as Overview).experiment.priority !== null;
      return given ? (admin ? asItWas(row, experiment) : null) : orderedAgain(experiment, row.priority);
    }
  };
}

/** Move an experiment ahead of all requests in the queue. */
export function moveFirst(row: Waiting, experiment: number): Act {
  return {
    method: 'POST',
    path: `/queue/${experiment}/first`,
    said: () => `#${experiment} is ahead of everything that waits`,
    fold: snapshot => snapshot,
    undo: asItWas(row, experiment)
  };
}

/**
 * Restore the priority before an admin's change: the owner's, or the one that an admin had set, or the head of the
 * queue.
 */
function asItWas({ priority, by_admin }: Waiting, experiment: number): Act {
  return orderedAgain(experiment, by_admin ? priority : null);
}

function orderedAgain(experiment: number, priority: number | null): Act {
  return ordered(experiment, priority, () => `Priority of #${experiment}: as it was`);
}

function ordered(experiment: number, priority: number | string | null, said: () => string): Act {
  return {
    method: 'POST',
    path: `/queue/${experiment}/priority`,
    body: { priority },
    said,
    fold: snapshot => snapshot,
    undo: null
  };
}

/** Format an account: `ada`, `group vision`. */
export function nameOf(account: Pick<Account, 'kind' | 'name'>): string {
  return account.kind === 'group' ? `group ${account.name}` : account.name;
}

function pathOf({ kind, name }: Account): string {
  return `/accounts/${kind}/${encodeURIComponent(name)}/quota`;
}
