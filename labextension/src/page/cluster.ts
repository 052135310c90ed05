/** Cluster state of the page: polled while the page is visible, and changed by actions. */

import { Poll } from '@lumino/polling';

import type { Account, Answer, AuditEntry, ReadRoute, SpendingReport, UseOverTime } from '../api/types';
import { ServiceError } from '../service/source';
import type { Query } from '../service/source';
import type { Act } from './actions';
import {
  failed,
  type ClusterSnapshot,
  learnt,
  NOTHING,
  type View,
  withEntries,
  withOlderEntries
} from './clusterstate';
import type { Requester } from './source';

const INTERVAL_MS = 3_000;
const LONGEST_MS = 15_000; // maximum interval between polls while the service does not answer
const ENTRIES = 200; // audit entries per request
const OWN_EXPERIMENTS = 200; // own experiments per request
const DISK_S = 600; // interval between requests of the disk usage, which the service measures each time
const LARGEST = 5; // experiments of which the disk usage is shown
const TYPING_MS = 300; // delay after the last key before the search is sent

/** Last action, and whether it can be undone. */
export interface Done {
  readonly text: string;
  readonly undo: Act | null;
  readonly wrong: boolean;
}

export type By = SpendingReport['by'];

export class Cluster {
  private readonly _poll: Poll;
  private readonly _listeners = new Set<() => void>();
  private _snapshot = NOTHING;
  private _done: Done | null = null;
  private _view: View = 'cluster';
  private _search = ''; // search in the audit log
  private _typing: ReturnType<typeof setTimeout> | undefined;
  private _diskAt = -Infinity; // time of the last request of the disk usage
  private _turn = 0; // number of the current request; answers to earlier ones are ignored

  constructor(
    private readonly _source: Requester,
    private readonly _now: () => number
  ) {
    this._poll = new Poll({
      name: 'daylight:cluster',
      auto: false,
      factory: () => this._look(),
      standby: 'when-hidden'
    });
    // Set here: the constructor of Poll would replace a maximum below its default of 30 s.
    this._poll.frequency = { interval: INTERVAL_MS, max: LONGEST_MS, backoff: true };
  }

  get snapshot(): ClusterSnapshot {
    return this._snapshot;
  }

  get done(): Done | null {
    return this._done;
  }

  /** Call a listener after every change; returns a function that unsubscribes it. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  };

  /** Make `view` the current view, whose data alone is polled from now on. */
  show(view: View): void {
    this._view = view;
    this.refresh();
  }

  /** Show the audit entries that contain all of these words; the request is sent when the user has stopped typing. */
  search(words: string): void {
    clearTimeout(this._typing);
    this._typing = setTimeout(() => {
      this._search = words;
      this.refresh();
    }, TYPING_MS);
  }

  refresh(): void {
    void this._poll.schedule({ interval: Poll.IMMEDIATE, phase: 'refreshed' });
  }

  /** Perform an action, show its result and offer to undo it; throws ServiceError. */
  async act(act: Act): Promise<void> {
    const answer = await this._source.ask(act.method, act.path, {}, act.body);
    this._turn += 1; // answers to earlier requests do not include this action
    const undo = act.undoneBy ? act.undoneBy(answer) : act.undo;
    this._done = { text: act.said(answer), undo, wrong: false };
    this._take(act.fold(this._snapshot, answer));
    this.refresh();
  }

  /** Perform an action; an error is shown as its result instead of being thrown. */
  async try(act: Act): Promise<void> {
    try {
      await this.act(act);
    } catch (error) {
      this._say({ text: ours(error).message, undo: null, wrong: true });
    }
  }

  /** Undo the last action, if possible. */
  async undo(): Promise<void> {
    if (this._done?.undo) {
      await this.try(this._done.undo);
    }
  }

  dismiss(): void {
    this._say(null);
  }

  /** Return the slots that an account has held during the last `seconds`; throws ServiceError. */
  async use(account: Pick<Account, 'kind' | 'name'>, seconds: number, points: number): Promise<UseOverTime> {
    const until = Math.floor(this._now()); // the service accepts whole seconds
    const query = { since: until - seconds, until, points };
    return this._get('/api/accounts/{kind}/{name}/use', query, { kind: account.kind, name: account.name });
  }

  /** Return slot-hours, energy and cost: of all users for admins, else of the user; throws ServiceError. */
  async spending(by: By): Promise<SpendingReport> {
    return this._get('/api/usage', { by });
  }

  /** Return the report of `spending` as CSV; throws ServiceError. */
  async spendingCsv(by: By): Promise<string> {
    return this._source.text('/usage.csv', { by });
  }

  /** Load the audit entries before those already loaded. */
  async older(): Promise<void> {
    const search = this._snapshot.auditOf;
    const before = this._snapshot.audit?.at(-1)?.seq;
    if (before === undefined) {
      return;
    }
    try {
      const query = { ...page(search), before };
      const found = await this._get('/api/audit', query);
      if (search === this._snapshot.auditOf) {
        this._take(withOlderEntries(this._snapshot, found.audit, ENTRIES));
      }
    } catch (error) {
      this._take(failed(this._snapshot, ours(error)));
    }
  }

  dispose(): void {
    this._turn += 1;
    clearTimeout(this._typing);
    this._poll.dispose();
    this._listeners.clear();
  }

  private async _look(): Promise<void> {
    const turn = ++this._turn;
    const search = this._search;
    try {
      const [found, entries] = await this._asked();
      if (turn === this._turn) {
        const snapshot = learnt(this._snapshot, found, this._now());
        this._take(entries ? withEntries(snapshot, entries, ENTRIES, search) : snapshot);
      }
    } catch (error) {
      if (turn === this._turn) {
        this._take(failed(this._snapshot, ours(error)));
        throw error; // Poll then increases its interval
      }
    }
  }

  /** Request what this view shows and, for the audit view, the newest audit entries. */
  private async _asked(): Promise<[Partial<ClusterSnapshot>, AuditEntry[] | null]> {
    switch (this._view) {
      case 'cluster': {
        const [me, experiments, queue, nodes, pools] = await Promise.all([
          this._get('/api/me'),
          this._get('/api/experiments', { state: 'active', limit: OWN_EXPERIMENTS }),
          this._get('/api/queue'),
          this._get('/api/nodes'),
          this._get('/api/pools')
        ]);
        void this._lookAtDisk();
        return [{ me, ...experiments, ...queue, ...nodes, ...pools }, null];
      }
      case 'accounts': {
        const [me, accounts] = await Promise.all([this._get('/api/me'), this._get('/api/accounts')]);
        return [{ me, ...accounts }, null];
      }
      case 'audit': {
        const [me, { audit }] = await Promise.all([this._get('/api/me'), this._get('/api/audit', page(this._search))]);
        return [{ me }, audit];
      }
    }
  }

  /** Request the disk usage of the user's files, seldom. Nothing waits for the answer, and errors are ignored. */
  private async _lookAtDisk(): Promise<void> {
    const now = this._now();
    if (now - this._diskAt < DISK_S) {
      return;
    }
    this._diskAt = now;
    const disk = await this._get('/api/disk', { largest: LARGEST }).catch(() => null);
    if (disk) {
      this._take({ ...this._snapshot, disk });
    }
  }

  /** Return the answer of a route. Its type comes from the OpenAPI document; the answer is not validated. */
  private async _get<R extends ReadRoute>(route: R, query?: Query, parts: Record<string, string> = {}) {
    const path = route
      .slice('/api'.length)
      .replace(/\{(\w+)\}/g, (_, part: string) => encodeURIComponent(parts[part] ?? ''));
    return (await this._source.ask('GET', path, query)) as Answer<R>;
  }

  private _take(snapshot: ClusterSnapshot): void {
    this._snapshot = snapshot;
    this._changed();
  }

  private _say(done: Done | null): void {
    this._done = done;
    this._changed();
  }

  private _changed(): void {
    for (const listener of this._listeners) {
      listener();
    }
  }
}

function page(search: string): Query {
  return search ? { limit: ENTRIES, search } : { limit: ENTRIES };
}

function ours(error: unknown): ServiceError {
  return error instanceof ServiceError ? error : new ServiceError(0, String(error));
}
