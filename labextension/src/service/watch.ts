/** Data, connection and actions of one experiment for its views. No DOM. */

import type { Curve, LogChunk, Overview, PoolStatus } from '../api/types';
import { ExperimentCache } from '../model/experimentstate';
import type { Saved, SavedSearch } from '../model/saved';
import { announce, onChange } from './changes';
import { foreignText, Line, readOverview } from './connection';
import type { Connection, ConnectionOptions } from './connection';
import { ServiceError } from './source';
import type { ActionBody, Query, Source } from './source';

export type { Connection } from './connection';

/** Data to draw; a new object after each change. */
export interface Look {
  readonly number: number;
  readonly overview: Overview | null;
  readonly curves: readonly Curve[];
  readonly trial: number; // trial to which the curves belong
  readonly captured: readonly string[];
  readonly search: SavedSearch | null; // status when the notebook was saved
  readonly connection: Connection;
  readonly heard: boolean; // whether the service has answered; otherwise the data is the notebook's copy
  readonly error: string | null; // text of the connection error
  readonly at: number; // time of the state, in seconds since the epoch
}

/** Part of a log to return; the default trial is the first. */
export type LogQuery = ({ tail: number } | { offset: number; attempt: number; rank: number }) & { trial?: number };

export type Verb = 'stop' | 'pause' | 'resume' | 'delete' | 'undelete';

/** Action on an experiment, on its search or on a trial. */
export type Act = Verb | 'extend' | 'label' | 'move' | 'trace' | `trials/${number}/${Steer}`;
export type Steer = 'promote' | 'prune';

const EMIT_MS = 50; // messages within this time are one change
const SYSTEM: ConnectionOptions = { clock: () => Date.now() / 1000, chance: Math.random };

export class Watch {
  private readonly _known: ExperimentCache;
  private readonly _line: Line;
  private readonly _listeners = new Set<(look: Look) => void>();
  private _look: Look | null = null;
  private _savedAt = 0;
  private _begun = false;
  private _disposed = false;
  private _emitting: ReturnType<typeof setTimeout> | undefined;
  private _unsubscribe = (): void => undefined; // from changes made by this page

  constructor(
    private readonly _source: Source,
    private readonly _number: number,
    saved: Saved | null = null,
    options: ConnectionOptions = SYSTEM
  ) {
    this._known = new ExperimentCache(_number);
    this._line = new Line(_source, _number, this._known, () => this._changed(), options);
    if (saved && this._known.restore(saved)) {
      this._savedAt = saved.at;
    }
  }

  get look(): Look {
    this._look ??= {
      number: this._number,
      overview: this._known.overview,
      curves: this._known.curves,
      trial: this._known.trial,
      captured: this._known.captured,
      search: this._known.search,
      connection: this._line.connection,
      heard: this._line.heardAt !== null,
      error: this._line.error,
      at: this._at
    };
    return this._look;
  }

  /** Start; later calls do nothing. */
  start(): void {
    if (!this._begun && !this._disposed) {
      this._begun = true;
      this._unsubscribe = onChange(this._elsewhere);
      this._line.connect();
    }
  }

  /** Stop updating, as while the page is hidden, until `wake`. */
  rest(): void {
    this._line.leave();
  }

  /** Load the experiment again after `rest`, and keep it updated. */
  wake(): void {
    if (this._begun && !this._disposed) {
      this._line.connect();
    }
  }

  private readonly _elsewhere = (number: number): void => {
    if (number === this._number) {
      this._line.lookOnce();
    }
  };

  /** Merge a saved state, such as that of a changed output; an older one changes nothing. */
  adopt(saved: Saved): void {
    // A connected page has newer data and finer curves than the notebook.
    if (this._line.connection !== 'live' && !this._disposed && this._known.restore(saved)) {
      this._savedAt = saved.at;
      this._changed();
    }
  }

  /** Call `listener` after each change, at most once per frame; returns a function that unsubscribes it. */
  subscribe(listener: (look: Look) => void): () => void {
    const own = (look: Look): void => listener(look); // a new function, so that the same listener can subscribe twice
    if (!this._disposed) {
      this._listeners.add(own);
    }
    return () => void this._listeners.delete(own);
  }

  /** Reconnect now instead of after the pause. */
  retry(): void {
    if (!this._disposed) {
      this._line.retry();
    }
  }

  /** Stop, pause, resume, move, label, trace or delete the experiment, or steer its search; throws ServiceError. */
  async act(verb: Act, asked?: ActionBody): Promise<void> {
    const overview = readOverview(await this.post(`/${verb}`, asked));
    if (!this._disposed) {
      this._line.takeNewer(overview);
      this.retry(); // the service answers, so that a stream can be opened
    }
    announce(this._number, this._elsewhere);
  }

  /** Run the experiment again with these changes; return the new one's number. Throws ServiceError. */
  async rerun(asked: ActionBody): Promise<number> {
    return readOverview(await this.post('/rerun', asked)).experiment.number;
  }

  /** Return the service's answer to a request at a path below this experiment's; throws ServiceError. */
  async post(path: string, asked?: ActionBody): Promise<unknown> {
    await this._checked();
    return this._source.post(`/experiments/${this._number}${path}`, asked);
  }

  /** Return the service's JSON at a path below this experiment's, such as `/search`; throws ServiceError. */
  async ask(path: string, query: Query = {}): Promise<unknown> {
    await this._checked();
    return this._source.get(`/experiments/${this._number}${path}`, query);
  }

  /** Return the service's pools; throws ServiceError. */
  async pools(): Promise<readonly PoolStatus[]> {
    return ((await this._source.get('/pools')) as { pools: PoolStatus[] }).pools;
  }

  /** Return the bytes of a trial's artifact; throws ServiceError. */
  async artifact(trial: number, name: string): Promise<Uint8Array<ArrayBuffer>> {
    const file = await this.file(`/trials/${trial}/artifacts/${encodeURIComponent(name)}`);
    return new Uint8Array(await file.arrayBuffer());
  }

  /** Return the file at a path below this experiment's, such as `/export.csv`; throws ServiceError. */
  async file(path: string): Promise<Blob> {
    await this._checked();
    return this._source.file(`/experiments/${this._number}${path}`);
  }

  /** Return the last `tail` bytes of a log (of the failed rank, else rank 0), or what follows `offset`. */
  async logs(query: LogQuery): Promise<LogChunk> {
    await this._checked();
    return (await this._source.get(`/experiments/${this._number}/logs`, { ...query })) as LogChunk;
  }

  /** Close the stream and remove timers and listeners; the data stays readable. */
  dispose(): void {
    this._disposed = true;
    this._unsubscribe();
    this._line.leave();
    this._listeners.clear();
    clearTimeout(this._emitting);
  }

  /**
   * Wait until it is known that the service's experiment of this number is the notebook's; no action is sent before.
   */
  private async _checked(): Promise<void> {
    const foreign = this._line.connection === 'foreign' || (this._line.heardAt === null && !(await this._agrees()));
    if (foreign) {
      throw new ServiceError(409, foreignText(this._number));
    }
  }

  private async _agrees(): Promise<boolean> {
    return this._known.agrees(readOverview(await this._source.get(`/experiments/${this._number}`)));
  }

  private get _at(): number {
    return Math.max(this._savedAt, this._line.heardAt ?? 0);
  }

  private _changed(): void {
    this._look = null;
    this._emitting ??= setTimeout(() => this._emit(), EMIT_MS);
  }

  private _emit(): void {
    this._emitting = undefined;
    for (const listener of [...this._listeners]) {
      if (this._listeners.has(listener)) {
        listener(this.look);
      }
    }
  }
}
