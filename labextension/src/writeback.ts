/** Decide when the displayed state is written to a notebook's output. */

import type { Overview } from './api/types';
import { stateOf } from './model/overview';
import type { Connection, Look, Watch } from './service/watch';

const BETWEEN_S = 30; // seconds between writes while the experiment runs
const STATE_S = 2; // the same after a change of its state
const LONGEST_S = 600; // maximum after repeated failures

export interface WriteState {
  now: number; // seconds
  enabled: boolean; // by the user's settings
  visible: boolean; // whether the page is visible: if several are open, only the visible one writes
  connection: Connection;
  shown: Overview | null;
  kept: Overview; // state in the output
  triedAt: number | null;
  failures: number; // consecutive failures
}

/** Return the seconds until the output must be written, 0 for now; null if it is up to date, or must not be written. */
export function writeIn(state: WriteState): number | null {
  const { enabled, visible, shown, kept, triedAt, failures, now } = state;
  if (!enabled || !visible || shown === null || !settled(state.connection, shown)) {
    return null;
  }
  if (shown.seq < kept.seq || told(shown) === told(kept)) {
    return null;
  }
  if (triedAt === null) {
    return 0;
  }
  const pause = stateOf(shown) === stateOf(kept) ? BETWEEN_S : STATE_S;
  const patience = failures === 0 ? pause : Math.min(BETWEEN_S * 2 ** (failures - 1), LONGEST_S);
  return Math.max(0, triedAt + patience - now);
}

/**
 * Return whether the displayed state is confirmed by the service.
 *
 * That of an open experiment is while the connection is live; that of an ended one, once all messages were received.
 */
function settled(connection: Connection, shown: Overview): boolean {
  const open = shown.experiment.ended_at === null;
  return connection === 'ended' || (connection === 'live' && open);
}

/**
 * Return the parts of an overview that a reader of the notebook sees, to detect changes; sequence numbers are left out.
 */
function told(overview: Overview): string {
  const { experiment, trials, attempts, warnings } = overview;
  return JSON.stringify([
    [experiment.name, experiment.state, warnings],
    trials.map(({ index, state, step, epoch, metrics, failure }) => [
      [index, state, step, epoch, failure?.type, failure?.message],
      Object.entries(metrics).sort()
    ]),
    attempts.map(({ trial, number, state, outcome }) => [trial, number, state, outcome])
  ]);
}

/** Page and clock, which tests replace. */
export interface Page {
  enabled(): boolean;
  visible(): boolean;
  now(): number; // seconds
}

/** Scheduler that calls `write` when it is due; errors are ignored, and the write is repeated later. */
export class WriteBack {
  private _triedAt: number | null = null;
  private _failures = 0;
  private _writing = false;
  private _disposed = false;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private readonly _unsubscribe: () => void;

  constructor(
    private readonly _watch: Pick<Watch, 'look' | 'subscribe'>,
    private _kept: Overview,
    private readonly _page: Page,
    private readonly _write: () => Promise<void>
  ) {
    this._unsubscribe = _watch.subscribe(() => this.consider());
  }

  /** Record the state that the output contains, after something else has changed the output. */
  keep(overview: Overview): void {
    this._kept = overview;
    this.consider();
  }

  /** Check whether to write, after a change of the data, the page or a setting. */
  consider(): void {
    clearTimeout(this._timer);
    if (this._writing || this._disposed) {
      return;
    }
    const pause = writeIn(this._state(this._watch.look));
    if (pause === 0) {
      void this._try();
    } else if (pause !== null) {
      this._timer = setTimeout(() => this.consider(), 1000 * pause);
    }
  }

  dispose(): void {
    this._disposed = true;
    this._unsubscribe();
    clearTimeout(this._timer);
  }

  private _state(look: Look): WriteState {
    return {
      now: this._page.now(),
      enabled: this._page.enabled(),
      visible: this._page.visible(),
      connection: look.connection,
      shown: look.overview,
      kept: this._kept,
      triedAt: this._triedAt,
      failures: this._failures
    };
  }

  private async _try(): Promise<void> {
    const shown = this._watch.look.overview;
    const before = this._kept;
    this._triedAt = this._page.now();
    this._writing = true;
    try {
      await this._write();
      this._failures = 0;
      if (this._kept === before) {
        this._kept = shown ?? before; // otherwise the output has changed meanwhile
      }
    } catch {
      this._failures += 1;
    }
    this._writing = false;
    this.consider();
  }
}
