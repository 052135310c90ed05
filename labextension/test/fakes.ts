/** A service that says what a test tells it to, and small builders, so that a test says only what matters to it. */

import type { Attempt, Curves, Experiment, Message, Overview, Search, StoredReport, Trial } from '../src/api/types';
import type { Saved } from '../src/model/saved';
import { ServiceError, StreamCut } from '../src/service/source';
import type { Listener, Query, Source, Subscription } from '../src/service/source';

export const silence = new ServiceError(503, 'no answer');
export const snapped = new StreamCut('the connection was cut (1006)');
export const missing = new ServiceError(404, 'there is no experiment #12');

/** An open stream, as the service sees it. */
export class FakeStream implements Subscription {
  closed = false;

  constructor(
    readonly after: number,
    readonly experiment: number,
    readonly listener: Listener
  ) {}

  close(): void {
    this.closed = true;
  }

  say(...messages: Message[]): void {
    messages.forEach(message => this.listener.message(message));
  }
}

/** Answers with what is in `overview` and `curves`, or throws what is there; an answer waits while `held`. */
export class FakeSource implements Source {
  overview: Overview | ServiceError = overview();
  curves: Curves | ServiceError = curves();
  readonly asked: string[] = [];
  readonly queries: (Query | undefined)[] = [];
  readonly streams: FakeStream[] = [];
  opens = true;
  cuts = false;
  refuses = false;
  streamless = false; // as a page without JupyterLab
  private _held: Promise<void> | null = null;

  async get(path: string, query?: Query): Promise<unknown> {
    this.asked.push(path);
    this.queries.push(query);
    const answer = path.endsWith('/curves') ? this.curves : this.overview;
    await this._held;
    return given(answer);
  }

  async file(path: string): Promise<Blob> {
    await this.get(path);
    return new Blob([path.split('/').pop() ?? '']);
  }

  post(path: string, asked?: Query): Promise<unknown> {
    return this.get(path, asked);
  }

  watch(after: number, experiment: number, listener: Listener): Subscription | null {
    if (this.streamless) {
      return null;
    }
    if (this.refuses) {
      throw snapped;
    }
    const stream = new FakeStream(after, experiment, listener);
    this.streams.push(stream);
    void Promise.resolve().then(() => {
      if (this.opens) {
        listener.opened();
      }
      if (!this.opens || this.cuts) {
        listener.closed(snapped);
      }
    });
    return stream;
  }

  /** Keep all answers back until the result is called. */
  hold(): () => void {
    let release = (): void => undefined;
    this._held = new Promise(resolve => (release = resolve));
    return () => {
      this._held = null;
      release();
    };
  }

  get stream(): FakeStream {
    const newest = this.streams.at(-1);
    if (!newest) {
      throw new Error('nobody watches');
    }
    return newest;
  }
}

function given(answer: unknown): unknown {
  if (answer instanceof ServiceError) {
    throw answer;
  }
  return answer;
}

export function experiment(fields: Partial<Experiment> = {}): Experiment {
  return {
    number: 12,
    name: 'digits',
    state: 'active',
    owner: 'ada',
    group: 'ada',
    snapshot: '0'.repeat(64),
    config: {
      form: 'functions',
      slots: 2,
      least_slots: null,
      pool: null,
      one_node: false,
      group: null,
      priority: 0,
      preemptible: false,
      metric_pattern: [],
      max_time: null,
      backend: 'auto',
      device: 'auto',
      threads: 1,
      logical_workers: null,
      epochs: 10,
      epochs_unknown: false,
      steps: null,
      batch_size: 32,
      auto_batch: null,
      schedule_per: 'step',
      amp: null,
      ema: null,
      clip: null,
      gather_loss: false,
      accumulate: null,
      strategy: null,
      sync_bn: false,
      compile: false,
      uneven: null,
      per_slot_batch: false,
      validate_every: null,
      validate_first: false,
      patience: null,
      await_evaluation: false,
      weights_from: null,
      loader_workers: null,
      seed: 0,
      rng: 'derived',
      reproducible: 'host',
      rehearse: true,
      values: null,
      metric: { name: 'loss', mode: 'min' },
      search: null,
      checkpoint_every: null,
      keep: { best: 1, latest: 2, best_overall: null },
      max_restarts: 5,
      on_nan: 'fail',
      hang_timeout: 600,
      on_log: [],
      env: 'current',
      until: null,
      fetch: 'auto',
      data_at: {}
    },
    params: {},
    space: { parameters: [] },
    python: 'python',
    cwd: '/',
    notebook: null,
    rerun_of: null,
    begins_from: null,
    priority: null,
    note: '',
    tags: [],
    created_at: 100,
    ended_at: null,
    deleted_at: null,
    purged_at: null,
    ...fields
  };
}

export function trial(fields: Partial<Trial> = {}): Trial {
  return {
    experiment: 12,
    index: 1,
    state: 'running',
    holds: [],
    params: {},
    attempt: 1,
    failures: 0,
    queued_at: 100,
    step: 0,
    epoch: 0,
    total_steps: 1000,
    until: null,
    begins_from: null,
    checkpoint: null,
    metrics: {},
    best: null,
    training: {},
    failure: null,
    excluded: [],
    ended_at: null,
    ...fields
  };
}

export function attempt(number = 1, fields: Partial<Attempt> = {}): Attempt {
  return {
    experiment: 12,
    trial: 1,
    number,
    state: 'running',
    placement: [],
    pool: 'local',
    resume_from: null,
    created_at: 100,
    granted_at: 100,
    nodes: [],
    ended_at: null,
    outcome: null,
    failure: null,
    accepted: 0,
    backend: null,
    backend_reason: null,
    guarantee: null,
    trace: null,
    ...fields
  };
}

export function overview(fields: Partial<Overview> = {}): Overview {
  const defaults = {
    trial_counts: {},
    attempts: [],
    wait: null,
    starting: '',
    warnings: [],
    informational: [],
    found_batch_size: null,
    artifacts_seq: 0,
    seq: 5
  };
  return { experiment: experiment(), trials: [trial()], default_trials: null, ...defaults, ...fields };
}

/** What a search is asked to be where nothing is asked for. */
export const asha: Search = {
  method: 'asha',
  trials: 64,
  sampler: null,
  stopping: false,
  eta: 4,
  first_rung: null,
  brackets: 'aggressive',
  population: null,
  keep_allocation: null,
  interval: null,
  parallel: null,
  budget: null,
  max_time: null,
  source: null,
  options: {},
  warm: []
};

export function done(fields: Partial<Overview> = {}): Overview {
  const ended = {
    experiment: experiment({ state: 'completed', ended_at: 200 }),
    trials: [trial({ state: 'completed' })]
  };
  return overview({ ...ended, seq: 90, ...fields });
}

export function queued(fields: Partial<Overview> = {}): Overview {
  const times = { estimate: null, earliest: null, latest: null };
  const wait = { reason: '2nd in queue; 2 of 2 slots in use', place: 2, starts: false, ...times };
  return overview({ trials: [trial({ state: 'queued', attempt: 0 })], wait, ...fields });
}

export function report(step: number, seq = step, fields: Partial<StoredReport> = {}): StoredReport {
  const defaults = { trial: 1, attempt: 1, kind: 'training' as const, metrics: { loss: 1 / step } };
  return { seq, at: 100 + step, step, epoch: step / 100, ...defaults, ...fields };
}

export function curves(...reports: StoredReport[]): Curves {
  const column = (of: (each: StoredReport) => number): number[] => reports.map(of);
  const loss = column(each => Number(each.metrics.loss));
  const [size, step, epoch] = [column(() => 1), column(each => each.step), column(each => each.epoch)];
  const one = { size, step, epoch, at: column(each => each.at), mean: loss, low: loss, high: loss, broken: [] };
  const drawn = { kind: 'training' as const, metric: 'loss', ...one, last: loss.at(-1) ?? null };
  return { trial: 1, curves: reports.length ? [drawn] : [], seq: reports.at(-1)?.seq ?? 0 };
}

/** A message about this experiment. */
export function said(seq: number, about: Pick<Message, 'type' | 'data'>): Message {
  return { seq, at: 100, experiment: 12, trial: null, ...about } as Message;
}

export function reported(step: number, seq = step, fields: Partial<StoredReport> = {}): Message {
  return said(seq, { type: 'report', data: report(step, seq, fields) });
}

export function saved(fields: Partial<Saved> = {}): Saved {
  const defaults = { captured: ['2 values captured'], names: [], overview: overview(), curves: null, search: null };
  return { version: 1, number: 12, at: 150, ...defaults, ...fields };
}
