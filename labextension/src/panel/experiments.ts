/** List of experiments in the panel, polled while the panel is visible. */

import { Poll } from '@lumino/polling';
import type { IDisposable } from '@lumino/disposable';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

import type { DiskReport, NodeUse, Overview, Self, Waiting } from '../api/types';
import { announce } from '../service/changes';
import { ServiceError } from '../service/source';
import type { ActionBody, Source } from '../service/source';
import type { Act } from '../service/watch';
import { hasMoved, isActive, MOST_COMPARED, nextPause, queryFor } from './list';
import type { Filter } from './list';
import type { GroupBy } from './groupby';
import { Pages } from './pages';
import { NOTHING_REMEMBERED } from './remembered';
import type { Memory, Remembered } from './remembered';
import type { LiveSettings } from './settings';
import type { Queue } from './waiting';

const BESIDE_S = 600; // interval between requests of the disk usage, which the service measures each time
const WAITING = 50; // requests of each pool, besides the user's own
const LONGEST_S = 60; // longest interval that the user can set

export class Experiments implements IDisposable {
  private readonly _poll: Poll;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _chosen = new Set<number>();
  private _pages = new Pages();
  private _nodes: readonly NodeUse[] = [];
  private _warnings: readonly string[] = [];
  private _queue: Queue | null = null;
  private _queueShown: boolean;
  private _besideAt = -Infinity; // time of the last request of the disk usage
  private _address = '';
  private _at = 0;
  private _error: ServiceError | null = null;
  private _filter: Filter;
  private _group: GroupBy;
  private _here: boolean; // narrow the list to the first notebook in front
  private _loaded = false;
  private _watched = false;
  private _turn = 0; // number of the current request; answers to earlier ones are ignored
  private _pause: number;

  constructor(
    private readonly _source: Source,
    private readonly _settings: LiveSettings,
    private readonly _memory: Memory<Remembered> | null = null
  ) {
    const { search, state, here, group, queue } = _memory?.read() ?? NOTHING_REMEMBERED;
    this._filter = { search, state, notebook: null };
    this._group = group;
    this._here = here;
    this._queueShown = queue;
    this._pause = _settings.current.refreshSeconds;
    this._poll = new Poll({
      name: 'daylight:experiments',
      auto: false,
      factory: () => this._look(),
      frequency: { interval: 1000 * this._pause, max: 1000 * LONGEST_S, backoff: false },
      standby: 'when-hidden'
    });
    _settings.changed.connect(this._settingsChanged);
  }

  /** Signal: displayed data has changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Experiments that match the filter, newest first. */
  get list(): readonly Overview[] {
    return this._pages.list;
  }

  get nodes(): readonly NodeUse[] {
    return this._nodes;
  }

  /** Warnings about the user's disk usage. */
  get warnings(): readonly string[] {
    return this._warnings;
  }

  /** Address of the service's pages in browsers, or its path on this host; "" if it is not known. */
  get address(): string {
    return this._address;
  }

  /** Time of the last answer, in seconds since the epoch. */
  get at(): number {
    return this._at;
  }

  /** Error of the last request; null if it succeeded. */
  get error(): ServiceError | null {
    return this._error;
  }

  /** Whether the service has answered at least once. */
  get loaded(): boolean {
    return this._loaded;
  }

  get filter(): Filter {
    return this._filter;
  }

  set filter(filter: Filter) {
    this._filter = filter;
    this._pages = new Pages();
    this._loaded = false;
    this._remember();
    this._changed.emit();
    this.refresh();
  }

  /** Change the filter to `notebook`, now in front, if the list is filtered by notebook, or was at the last visit. */
  follow(notebook: string): void {
    const wanted = this._here || this._filter.notebook !== null;
    this._here = false;
    if (wanted && notebook !== this._filter.notebook) {
      this.filter = { ...this._filter, notebook };
    }
  }

  get group(): GroupBy {
    return this._group;
  }

  set group(group: GroupBy) {
    this._group = group;
    this._remember();
    this._changed.emit();
  }

  /** Waiting requests, and the user's quotas; null until the service has answered. */
  get queue(): Queue | null {
    return this._queue;
  }

  /** Whether queue and quotas are shown; only then are they requested. */
  get queueShown(): boolean {
    return this._queueShown;
  }

  set queueShown(shown: boolean) {
    if (shown !== this._queueShown) {
      this._queueShown = shown;
      this._remember();
      this._changed.emit();
      this.refresh();
    }
  }

  private _remember(): void {
    const { search, state, notebook } = this._filter;
    const here = this._here || notebook !== null;
    this._memory?.write({ search: search.trim(), state, here, group: this._group, queue: this._queueShown });
  }

  get hasMore(): boolean {
    return this._pages.hasMore;
  }

  more(): void {
    this._pages.more();
    this.refresh();
  }

  /** Numbers of the experiments to compare, in the order of selection. */
  get chosen(): readonly number[] {
    return [...this._chosen];
  }

  /** Select or deselect an experiment for the comparison; no more are selected than it can show. */
  choose(number: number, chosen: boolean): void {
    if (chosen && this._chosen.size < MOST_COMPARED) {
      this._chosen.add(number);
    } else if (!chosen) {
      this._chosen.delete(number);
    }
    this._changed.emit();
  }

  chooseNone(): void {
    this._chosen.clear();
    this._changed.emit();
  }

  find(number: number): Overview | null {
    return this.list.find(each => each.experiment.number === number) ?? null;
  }

  /** Return the current state of an experiment, listed or not; throws ServiceError. */
  async look(number: number): Promise<Overview> {
    return (await this._source.get(`/experiments/${number}`)) as Overview;
  }

  /** Start or stop polling. */
  set watched(watched: boolean) {
    this._watched = watched;
    if (watched) {
      this.refresh();
    } else {
      this._turn += 1;
      void this._poll.stop();
    }
  }

  /** Poll now, if polling is active. */
  refresh(): void {
    if (this._watched) {
      // Not `refresh()`, which does nothing while an earlier request is pending.
      void this._poll.schedule({ interval: Poll.IMMEDIATE, phase: 'refreshed' });
    }
  }

  /** Stop, pause, resume, label or delete an experiment; throws ServiceError. */
  async act(number: number, verb: Act, asked?: ActionBody): Promise<void> {
    await this._source.post(`/experiments/${number}/${verb}`, asked);
    announce(number);
    this._pages.again(number);
    this.refresh();
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    this._turn += 1;
    this._settings.changed.disconnect(this._settingsChanged);
    this._poll.dispose();
    Signal.clearData(this);
  }

  private readonly _settingsChanged = (): void => this.refresh();

  private async _look(): Promise<void> {
    const turn = ++this._turn;
    const before = this._pages.next();
    try {
      const [first, page, nodes, queue] = await Promise.all([
        this._page(null),
        before === null ? [] : this._page(before),
        this._source.get('/nodes'),
        this._queueShown ? this._lookAtQueue() : null
      ]);
      if (turn === this._turn) {
        this._queue = queue;
        const known = this._pages.list;
        this._pages.take(first, page, before);
        this._take(known, (nodes as { nodes: NodeUse[] }).nodes);
        void this._lookBeside();
      }
    } catch (error) {
      if (turn === this._turn) {
        this._fail(error);
      }
    }
  }

  private async _page(before: number | null): Promise<readonly Overview[]> {
    const found = await this._source.get('/experiments', queryFor(this._filter, before));
    return (found as { experiments: Overview[] }).experiments;
  }

  private async _lookAtQueue(): Promise<Queue> {
    const [queue, me] = await Promise.all([this._source.get('/queue', { limit: WAITING }), this._source.get('/me')]);
    return { waiting: (queue as { queue: Waiting[] }).queue, me: me as Self };
  }

  /** Request warnings about the disk and the address of the pages, seldom; nothing waits for it, nor fails with it. */
  private async _lookBeside(): Promise<void> {
    const now = Date.now() / 1000;
    if (now - this._besideAt < BESIDE_S) {
      return;
    }
    this._besideAt = now;
    const [disk, health] = await Promise.all([
      this._source.get('/disk', { largest: 0 }).catch(() => null) as Promise<DiskReport | null>,
      this._source.get('/health').catch(() => null) as Promise<{ pages?: string } | null>
    ]);
    if (!this.isDisposed) {
      this._warnings = disk?.warnings ?? this._warnings;
      this._address = health?.pages ?? this._address;
      this._changed.emit();
    }
  }

  private _take(before: readonly Overview[], nodes: readonly NodeUse[]): void {
    const moved = !this._loaded || this._error !== null || hasMoved(before, this.list);
    this._at = Date.now() / 1000;
    this._nodes = nodes;
    this._error = null;
    this._loaded = true;
    this._next({ failed: false, moved, active: isActive(this.list) });
  }

  private _fail(error: unknown): void {
    this._error = error instanceof ServiceError ? error : new ServiceError(0, String(error));
    this._next({ failed: true, moved: false, active: false });
  }

  private _next(heard: { failed: boolean; moved: boolean; active: boolean }): void {
    this._pause = nextPause(this._pause, this._settings.current.refreshSeconds, heard);
    this._poll.frequency = { ...this._poll.frequency, interval: 1000 * this._pause };
    this._changed.emit();
  }
}
