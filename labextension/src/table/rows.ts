/** Rows of all experiments of the user, read page by page, and then what changes. No DOM. */

import { Poll } from '@lumino/polling';

import type { ExperimentRow, ExperimentTable } from '../api/types';
import { nextPause } from '../panel/list';
import type { LiveSettings } from '../panel/settings';
import { onChange } from '../service/changes';
import { messageOf } from '../service/source';
import type { Source } from '../service/source';

const FIRST = 200; // rows of the first page, which are shown at once
const PAGE = 1000; // rows of any other, the most that the service sends
const LONGEST_S = 60; // longest interval that the user can set
const AT_WORK = ['starting', 'running', 'releasing', 'stopping'];

export class TableRows {
  private readonly _poll: Poll;
  private readonly _rows = new Map<number, ExperimentRow>();
  private readonly _unsubscribe: () => void;
  private _list: readonly ExperimentRow[] = [];
  private _seq: number | null = null; // number of the newest message that all rows include
  private _turn = 0; // number of the current request; answers to earlier ones are ignored
  private _pause: number;
  private _error = '';

  /** `changed` is called after each change of the rows. */
  constructor(
    private readonly _source: Pick<Source, 'get'>,
    private readonly _settings: LiveSettings,
    private readonly _changed: () => void
  ) {
    this._pause = _settings.current.refreshSeconds;
    this._poll = new Poll({
      name: 'daylight:table',
      auto: false,
      factory: () => this._look(),
      frequency: { interval: 1000 * this._pause, max: 1000 * LONGEST_S, backoff: false },
      standby: 'when-hidden'
    });
    this._unsubscribe = onChange(() => this.refresh());
  }

  /** All rows that were read, newest first. */
  get list(): readonly ExperimentRow[] {
    return this._list;
  }

  /** Whether all of the user's experiments were read. */
  get whole(): boolean {
    return this._seq !== null;
  }

  /** Message of the error of the last request; '' if it succeeded. */
  get error(): string {
    return this._error;
  }

  /** Start or stop polling. */
  set watched(watched: boolean) {
    this._turn += 1;
    void (watched ? this._poll.start() : this._poll.stop());
  }

  /** Poll now, if polling is active. */
  refresh(): void {
    if (this._poll.state.phase !== 'stopped' && this._poll.state.phase !== 'constructed') {
      // Not `refresh()`, which does nothing while an earlier request is pending.
      void this._poll.schedule({ interval: Poll.IMMEDIATE, phase: 'refreshed' });
    }
  }

  dispose(): void {
    this._turn += 1;
    this._unsubscribe();
    this._poll.dispose();
  }

  private async _look(): Promise<void> {
    const turn = ++this._turn;
    const after = this._seq;
    let limit = after === null ? FIRST : PAGE;
    let before: number | null = null;
    let seq: number | null = null;
    let [moved, failed] = [false, false];
    try {
      do {
        const asked = { limit, ...(after === null ? {} : { after }), ...(before === null ? {} : { before }) };
        const page = (await this._source.get('/experiments/table', asked)) as ExperimentTable;
        if (turn !== this._turn) {
          return;
        }
        seq ??= page.seq;
        before = page.rows.length < limit ? null : (page.rows.at(-1)?.number ?? null);
        limit = PAGE;
        moved ||= page.rows.length > 0;
        this._seq = before === null ? seq : this._seq;
        this._error = '';
        this._take(page.rows);
      } while (before !== null);
    } catch (error) {
      if (turn !== this._turn) {
        return;
      }
      failed = true;
      this._error = messageOf(error);
      this._changed();
    }
    const active = this._list.some(row => AT_WORK.includes(row.state));
    this._pause = nextPause(this._pause, this._settings.current.refreshSeconds, { failed, moved, active });
    this._poll.frequency = { ...this._poll.frequency, interval: 1000 * this._pause };
  }

  private _take(rows: readonly ExperimentRow[]): void {
    for (const row of rows) {
      if (row.state === 'deleted') {
        this._rows.delete(row.number);
      } else {
        this._rows.set(row.number, row);
      }
    }
    if (rows.length) {
      this._list = [...this._rows.values()].sort((one, other) => other.number - one.number);
    }
    this._changed();
  }
}
