/** What a person may do here, as requests: each knows what it says afterwards, and what takes it back. */

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
  /** In a sentence, once it is done. */
  said(answer: unknown): string;
  /** What the page knows then, before it looks again. */
  fold(snapshot: ClusterSnapshot, answer: unknown): ClusterSnapshot;
  readonly undo: Act | null;
  /** The same, where it is known by the answer. */
  undoneBy?(answer: unknown): Act | null;
}

/** Set one number of a quota; null is back to the hub's. */
export function setQuota(account: Account, name: FieldName, value: unknown): Act {
  const title = FIELDS.find(each => each.name === name)?.title ?? name;
  const before = fieldText(account.quota, name);
  return {
    ...putQuota(account, { [name]: value }),
    said: answer => `${title} of ${nameOf(account)}: ${fieldText((answer as Account).quota, name)}, it was ${before}`,
    undo: restoreQuota(account)
  };
}

/** All of a quota back to the hub's. */
export function clearQuota(account: Account): Act {
  return {
    method: 'DELETE',
    path: pathOf(account),
    said: () => `${nameOf(account)}: all numbers are the hub's`,
    fold: (snapshot, answer) => withAccount(snapshot, answer as Account),
    undo: restoreQuota(account)
  };
}

/** As it was: what was set here is set again, and the rest is the hub's. */
function restoreQuota(account: Account): Act {
  const body = Object.fromEntries(FIELDS.map(({ name }) => [name, wireValue(account, name)]));
  return { ...putQuota(account, body), said: () => `${nameOf(account)}: as it was`, undo: null };
}

/** What the service is sent to have it as it is: null is the hub's, `none` no limit whatever the hub says. */
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

/** Let nothing new start on a node, or let it again. */
export function drain(node: NodeUse, drained: boolean): Act {
  return {
    ...drainOnly(node, drained),
    undo: drainOnly(node, !drained)
  };
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

/** Ask with another priority. What an admin has given before, its owner can lower and not have back. */
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

/** Ahead of everything that waits. */
export function moveFirst(row: Waiting, experiment: number): Act {
  return {
    method: 'POST',
    path: `/queue/${experiment}/first`,
    said: () => `#${experiment} is ahead of everything that waits`,
    fold: snapshot => snapshot,
    undo: asItWas(row, experiment)
  };
}

/** As before an admin gave it another priority: its owner's, or what an admin had given, a place at the front too. */
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

/** `ada`, `group vision`. */
export function nameOf(account: Pick<Account, 'kind' | 'name'>): string {
  return account.kind === 'group' ? `group ${account.name}` : account.name;
}

function pathOf({ kind, name }: Account): string {
  return `/accounts/${kind}/${encodeURIComponent(name)}/quota`;
}
