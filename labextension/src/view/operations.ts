/** The operations that take longest, from a trace that is recorded on request while the training runs. */

import type { Artifact } from '../api/types';
import { canRecord, isRecording, OPERATION_HEAD, OPERATIONS, operationRows, traceText } from '../model/traces';
import type { RankTrace } from '../model/traces';
import { messageOf } from '../service/source';
import type { Look, Watch } from '../service/watch';
import { button, cells, h, heads, setChildren, setText, show, wide } from './dom';
import { Polling } from './search/polling';

const STEPS = 10; // as in `daylight profile 12 --steps 10`
const EVERY_MS = 1500;
const RECORDING = `Recording ${STEPS} steps: what they took is shown here in a moment.`;
const NONE = 'No trace has been recorded: record one while it trains.';

export class Operations {
  private readonly _record = button(`Record ${STEPS} steps`, () => void this._request());
  private readonly _said = h('p', { class: 'dl-dim', role: 'status' });
  private readonly _body = h('tbody');
  private readonly _table = wide('Operations', h('table', { class: 'dl-table' }, heads(OPERATION_HEAD), this._body));
  readonly root: HTMLDetailsElement;
  private readonly _polling: Polling<readonly RankTrace[] | null>;
  private _look: Look | null = null;
  private _trial = 1;
  private _seq = 0; // number of the newest artifact that was looked for
  private _digest = ''; // of the shown trace
  private _traces: readonly RankTrace[] = [];
  private _problem = '';

  constructor(private readonly _watch: Pick<Watch, 'act' | 'ask' | 'artifact'>) {
    this.root = h(
      'details',
      { class: 'dl-fold dl-operations', ontoggle: () => this._again() },
      h('summary', {}, 'Operations'),
      this._record,
      this._said,
      this._table
    );
    this._polling = new Polling(
      () => this._newest(),
      traces => {
        this._problem = '';
        if (traces) {
          this._draw(traces);
        }
      },
      error => this._fail(error),
      EVERY_MS
    );
  }

  /** Follow a trial of the experiment. */
  update(look: Look, trial: number): void {
    this._look = look;
    if (trial !== this._trial) {
      this._trial = trial;
      this._seq = 0;
      this._digest = '';
      this._problem = '';
      this._draw([]);
    }
    const live = look.connection === 'live' && look.overview !== null;
    show(this._record, live && canRecord(look.overview, trial));
    this._say();
    this._again();
  }

  dispose(): void {
    this._polling.dispose();
  }

  private async _request(): Promise<void> {
    this._record.disabled = true;
    this._problem = '';
    try {
      await this._watch.act('trace', { trial: this._trial, steps: STEPS, ranks: [0] });
    } catch (error) {
      this._fail(error);
    }
    this._record.disabled = false;
  }

  /** Request the newest trace if artifacts were stored since the last request, and it is visible. */
  private _again(): void {
    const seq = this._look?.overview?.artifacts_seq ?? 0;
    const heard = this._look !== null && ['live', 'ended'].includes(this._look.connection);
    if (this.root.open && heard && seq > this._seq) {
      this._seq = seq;
      this._polling.want(true);
    }
  }

  /** Return the newest trace; null if it is shown already. */
  private async _newest(): Promise<readonly RankTrace[] | null> {
    const trial = this._trial;
    const { artifacts } = (await this._watch.ask('/artifacts')) as { artifacts: Artifact[] };
    const found = artifacts.find(each => each.trial === trial && each.name === OPERATIONS);
    if (found === undefined || found.digest === this._digest) {
      return found === undefined ? [] : null;
    }
    const bytes = await this._watch.artifact(trial, OPERATIONS);
    if (trial !== this._trial) {
      return null;
    }
    this._digest = found.digest;
    return JSON.parse(new TextDecoder().decode(bytes)) as RankTrace[];
  }

  private _draw(traces: readonly RankTrace[]): void {
    this._traces = traces;
    const rows = operationRows(traces).map(cells);
    setChildren(this._body, rows);
    show(this._table, rows.length > 0);
    this._say();
  }

  private _say(): void {
    const overview = this._look?.overview ?? null;
    const recording = overview !== null && isRecording(overview, this._trial);
    setText(this._said, this._problem || (recording ? RECORDING : traceText(this._traces) || NONE));
  }

  private _fail(error: unknown): void {
    this._seq = 0; // the next change requests it again
    this._problem = messageOf(error);
    this._say();
  }
}
