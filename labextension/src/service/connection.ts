/** Connection to the service: load an experiment, follow its message stream, and reconnect after an interruption. */

import type { Curves, Message, Overview } from '../api/types';
import { POINTS } from '../model/curves';
import type { ExperimentCache } from '../model/experimentstate';
import { frontOf, holdingState, overviewIn } from '../model/overview';
import { runsAsItIs } from '../model/text';
import { messageOf, ServiceError, StreamCut } from './source';
import type { Listener, Source, Subscription } from './source';

/**
 * connecting  no answer has arrived yet (the saved state is shown, if there is one)
 * live        the stream is open; or, if there is or can be none, the service is polled every few seconds
 * lost        the stream was cut, or the service cannot be reached; the connection is retried with back-off
 * ended       the experiment has ended and all is known: no stream is held open
 * gone        the service knows no such experiment (any more)
 * foreign     the service's experiment of this number is another one than the saved one
 */
export type Connection = 'connecting' | 'live' | 'lost' | 'ended' | 'gone' | 'foreign';

/** Clock (seconds since the epoch) and random numbers (0 to 1), which tests replace. */
export interface ConnectionOptions {
  clock: () => number;
  chance: () => number;
}

const WAIT_MS = 5_000; // interval for polling why a trial waits, which the stream does not report
const SOON_MS = 250; // first poll after a trial was queued
const ENDED_MS = 30_000; // interval for polling whether another page has extended an ended search
const PAUSES_S = [0.5, 1, 2, 4, 8, 15]; // before reconnecting
const STEADY_S = 10; // a stream that was open this long resets the pauses
const FAR = 2_000; // missed messages from which downsampled curves are smaller than the stream
const DEAF = 3; // consecutive streams without a message while the service answers: something blocks them
const POLL_S = 5; // seconds between polls in that case

const BLOCKED = `no live updates (websockets are blocked on the way?); looking every ${POLL_S} s`;

type Timer = ReturnType<typeof setTimeout>;

/**
 * Connection of one experiment: data is stored in `known`; `changed` is called after each change of data or connection.
 */
export class Line {
  private _connection: Connection = 'connecting';
  private _error: string | null = null;
  private _heardAt: number | null = null;
  private _turn = 0; // number of the current connection; answers of earlier ones are ignored
  private _busy = false; // requests of this turn are pending
  private _failures = 0;
  private _why = ''; // reason for the lost connection
  private _answered = false; // the service has answered in this turn
  private _fruitless = 0; // consecutive streams without a message
  private _stream: Subscription | null = null;
  private _polled = false; // the source has no streams
  private _openedAt: number | null = null;
  private _retrying: Timer | undefined;
  private _requestTimer: Timer | undefined;

  constructor(
    private readonly _source: Source,
    private readonly _number: number,
    private readonly _known: ExperimentCache,
    private readonly _changed: () => void,
    private readonly _options: ConnectionOptions
  ) {}

  get connection(): Connection {
    return this._connection;
  }

  /** Error as text, for `lost`, `gone` and `foreign`, and if no stream can be opened; else null. */
  get error(): string | null {
    return this._error;
  }

  /** Time of the last message or answer of the service; null before the first. */
  get heardAt(): number | null {
    return this._heardAt;
  }

  /** Load the experiment, then follow its stream; earlier work is cancelled. */
  connect(): void {
    this.leave();
    const turn = this._turn;
    this._busy = true;
    if (this._connection === 'lost') {
      this._become('lost', inWords(this._why, 'trying again now'));
    }
    const over = (then: () => void): void => {
      if (turn === this._turn) {
        this._busy = false;
        then();
      }
    };
    this._load(turn).then(
      goesOn => over(() => goesOn && this._listen(turn)),
      (error: unknown) => over(() => this._failed(error))
    );
  }

  /** Connect now, unless that is in progress. */
  retry(): void {
    const goesOnAgain = this._connection === 'ended' && !this._known.ended; // a search that was extended
    if ((goesOnAgain || ['lost', 'gone', 'foreign'].includes(this._connection)) && !this._busy) {
      this._failures = 0;
      this.connect();
    }
  }

  /** Request the overview of an ended experiment once, after this page has changed it. */
  lookOnce(): void {
    if (this._connection === 'ended') {
      void this._ask(this._turn);
    }
  }

  /** Close the stream, cancel timers, and ignore pending answers. */
  leave(): void {
    this._turn += 1;
    this._answered = false;
    this._dropStream();
    clearTimeout(this._retrying);
    clearTimeout(this._requestTimer);
  }

  private _dropStream(): void {
    this._openedAt = null;
    this._stream?.close();
    this._stream = null;
  }

  /** Apply an overview requested outside of the stream, unless the stream has delivered a newer one. */
  takeNewer(overview: Overview): void {
    if (this._known.agrees(overview) && overview.seq >= (this._known.overview?.seq ?? 0)) {
      this._known.take(overview);
      this._heard();
    }
  }

  /** Load missing data; return true if the experiment has a stream to follow. */
  private async _load(turn: number): Promise<boolean> {
    const known = this._known;
    const last = known.ended; // the experiment has ended: the data fetched now is final
    const whole = last || !known.complete || this._isDeaf || this._polled;
    const [overview, own] = await Promise.all([this._getOverview(), whole ? this._getCurves() : null]);
    const curves = own && (await this._ofBest(overview, own));
    if (turn !== this._turn) {
      return false;
    }
    this._answered = true;
    if (!known.agrees(overview)) {
      this._become('foreign', foreignText(this._number));
      return false;
    }
    known.take(overview);
    if (curves) {
      known.takeCurves(curves);
    }
    this._heard();
    if (known.ended && !last) {
      return this._load(turn); // it may have ended between the two answers
    }
    if (known.ended) {
      this._end();
    } else if (curves === null && overview.seq - known.heard > FAR) {
      await this._catchUp(turn);
    }
    return turn === this._turn && !known.ended;
  }

  private async _catchUp(turn: number): Promise<void> {
    const curves = await this._getCurves(this._known.trial);
    if (turn === this._turn) {
      this._known.takeCurves(curves);
    }
  }

  private _listen(turn: number): void {
    const during = (then: () => void): void => {
      if (turn === this._turn) {
        then();
      }
    };
    if (this._isDeaf) {
      this._poll(BLOCKED);
    }
    const listener: Listener = {
      opened: () => during(() => this._opened()),
      message: message => during(() => this._hear(message)),
      closed: error => during(() => this._failed(error))
    };
    let stream: Subscription | null;
    try {
      stream = this._source.watch(this._known.seq, this._number, listener);
    } catch (error) {
      during(() => this._failed(error));
      return;
    }
    if (stream === null) {
      this._polled = true;
      this._poll(null);
    } else if (turn === this._turn) {
      this._stream = stream;
    } else {
      stream.close(); // the stream has failed or ended within the call
    }
  }

  private _opened(): void {
    this._openedAt = this._options.clock();
    if (!this._isDeaf) {
      this._become('live');
      this._askBeside();
    }
  }

  private _end(): void {
    this._become('ended');
    this._askBeside();
  }

  /** Load the experiment again after a pause, as no stream is open; `error` says why, if there should be one. */
  private _poll(error: string | null): void {
    this._failures = 0;
    this._become('live', error);
    this._retrying = setTimeout(() => this._lookAgain(), 1000 * POLL_S);
  }

  /** Load the experiment again if no stream is open; a stream that is still open shows that streams work again. */
  private _lookAgain(): void {
    if (this._openedAt === null) {
      this.connect();
    } else {
      this._comesThrough();
    }
  }

  private _comesThrough(): void {
    const wasDeaf = this._isDeaf;
    this._fruitless = 0;
    if (wasDeaf) {
      clearTimeout(this._retrying);
      this._become('live');
      this._askBeside();
    }
  }

  private _hear(message: Message): void {
    if (!this._known.hear(message)) {
      return;
    }
    this._failures = 0;
    this._comesThrough();
    this._heard();
    if (['experiment', 'trial', 'attempt'].includes(message.type)) {
      this._askBeside(SOON_MS);
    }
  }

  /** Handle an interrupted stream or a failed request, depending on the error. */
  private _failed(error: unknown): void {
    const steady = this._openedAt !== null && this._options.clock() - this._openedAt >= STEADY_S;
    if (error instanceof StreamCut && this._answered && this._isDeaf) {
      this._dropStream(); // polling continues
      return;
    }
    if (steady) {
      this._fruitless = 0;
    } else if (error instanceof StreamCut && this._answered) {
      this._fruitless += 1;
    }
    this.leave();
    if (error instanceof ServiceError && error.status === 404) {
      this._become('gone', this._goneText());
    } else if (this._known.ended) {
      this._end();
    } else if (error instanceof StreamCut && this._isDeaf) {
      this._poll(BLOCKED);
    } else {
      this._failures = steady ? 0 : this._failures;
      this._tryAgain(error);
    }
  }

  private _goneText(): string {
    return this._known.overview
      ? `experiment #${this._number} is no longer there; this is how it was last seen`
      : `there is no experiment #${this._number}`;
  }

  private _tryAgain(error: unknown): void {
    const pause = PAUSES_S[Math.min(this._failures, PAUSES_S.length - 1)] ?? 0;
    this._failures += 1;
    this._why = messageOf(error);
    this._become('lost', inWords(this._why, `trying again in ${pause} s`));
    // Spread the retries of a page's views over time.
    this._retrying = setTimeout(() => this.connect(), 1000 * pause * (0.8 + 0.4 * this._options.chance()));
  }

  /** Whether the service answers requests, but no stream can be opened. */
  private get _isDeaf(): boolean {
    return this._fruitless >= DEAF;
  }

  // Changes that the stream does not report

  /** Request the overview after a delay, as long as something may change that the stream does not report. */
  private _askBeside(after?: number): void {
    clearTimeout(this._requestTimer);
    const pause = this._pauseBeside;
    if (pause !== null) {
      const turn = this._turn;
      this._requestTimer = setTimeout(() => void this._ask(turn), after ?? pause);
    }
  }

  private async _ask(turn: number): Promise<void> {
    try {
      const overview = await this._getOverview();
      if (turn === this._turn) {
        this._takeBeside(overview);
      }
    } catch {
      // The stream detects lost connections; the data of an ended experiment is complete.
    }
    if (turn === this._turn) {
      this._askBeside();
    }
  }

  /** Apply a polled overview. An ended experiment that has changed is loaded again, as it may have new curves. */
  private _takeBeside(overview: Overview): void {
    if (this._connection !== 'ended') {
      this.takeNewer(overview);
    } else if (this._known.agrees(overview) && overview.seq > (this._known.overview?.seq ?? 0)) {
      this.connect();
    }
  }

  /**
   * Interval for polling what no message reports: why a trial waits, or that an ended search was extended; null if
   * neither is possible.
   */
  private get _pauseBeside(): number | null {
    switch (this._connection) {
      case 'live':
        return this._waits() ? WAIT_MS : null;
      case 'ended':
        return this._heardAt !== null && this._mayGoOn() ? ENDED_MS : null;
      default:
        return null;
    }
  }

  private _mayGoOn(): boolean {
    const experiment = this._known.overview?.experiment;
    return !!experiment?.config.search && experiment.state === 'completed';
  }

  /** Whether the experiment waits for slots, or has not reported anything since it got some. */
  private _waits(): boolean {
    const overview = this._known.overview;
    if (overview?.experiment.state !== 'active') {
      return false;
    }
    const [state, { config }] = [holdingState(overview), overview.experiment];
    const said = state === 'running' && runsAsItIs(config) && overview.starting !== ''; // no more will be known
    return state === null || (config.search === null && frontOf(overview)?.step === 0 && !said);
  }

  private async _getOverview(): Promise<Overview> {
    return readOverview(await this._source.get(`/experiments/${this._number}`));
  }

  private async _getCurves(trial = 1): Promise<Curves> {
    return (await this._source.get(`/experiments/${this._number}/curves`, { trial, points: POINTS })) as Curves;
  }

  /** Return the curves of the best trial of a search, which only the overview names; load them if needed. */
  private _ofBest(overview: Overview, curves: Curves): Curves | Promise<Curves> {
    const best = frontOf(overview)?.index ?? curves.trial;
    return overview.experiment.config.search && best !== curves.trial ? this._getCurves(best) : curves;
  }

  private _heard(): void {
    this._heardAt = this._options.clock();
    this._changed();
    if (this._known.ended && this._stream) {
      this.connect(); // to fetch the final state
    }
  }

  private _become(connection: Connection, error: string | null = null): void {
    this._connection = connection;
    this._error = error;
    this._changed();
  }
}

/** Format an error and what is done about it. */
function inWords(why: string, next: string): string {
  const sentence = why.trim().replace(/\.$/, '');
  return sentence.includes('\n') ? `${sentence}\n${next}` : `${sentence}; ${next}`;
}

/** Return the error text for a service whose experiment of this number is not the notebook's. */
export function foreignText(number: number): string {
  return `another Daylight has this experiment; here #${number} is another one`;
}

/** Return the overview in an answer; throws ServiceError if there is none. */
export function readOverview(json: unknown): Overview {
  const overview = overviewIn(json);
  if (overview === null) {
    throw new ServiceError(0, "this is no answer of Daylight's service");
  }
  return overview;
}
