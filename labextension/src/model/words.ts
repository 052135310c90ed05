/**
 * The words of `kernel_backend/model/` as they look in JSON. A test compares their fields with the Python records.
 */

/** A number as JSON carries it: what is not finite travels as text. */
export type Num = number | 'NaN' | 'Infinity' | '-Infinity';
export type Value = boolean | number | string | null | Value[];
export type Metrics = Record<string, Num>;

export type ExperimentState = 'active' | 'paused' | 'stopping' | 'stopped' | 'completed' | 'failed';
export type TrialState =
  | 'queued'
  | 'starting'
  | 'running'
  | 'releasing'
  | 'paused'
  | 'stopping'
  | 'completed'
  | 'stopped'
  | 'pruned'
  | 'failed';
export type AttemptState = 'pending' | 'placed' | 'running' | 'ending' | 'ended';
export type Outcome = 'ok' | 'released' | 'failed' | 'lost' | 'killed' | 'timeout' | 'infeasible';
export type Kind = 'training' | 'validation';

export interface Cadence {
  seconds: number | null;
  epochs: number | null;
  steps: number | null;
}

export interface Keep {
  best: number;
  latest: number;
  best_overall: number | null;
}

export interface Metric {
  name: string;
  mode: 'min' | 'max';
}

export interface LogPolicy {
  pattern: string;
  action: 'cancel_retries' | 'exclude_node';
}

export interface Config {
  form: 'functions';
  slots: number;
  backend: 'auto' | 'horovod' | 'torch';
  device: 'auto' | 'cpu';
  threads: number | null;
  logical_workers: number | null;
  epochs: number;
  steps: number | null;
  batch_size: number;
  schedule_per: 'step' | 'epoch';
  amp: 'bf16' | 'fp16' | null;
  ema: number | null;
  clip: number | null;
  loader_workers: number | null;
  seed: number;
  rng: 'derived' | 'stream';
  reproducible: 'off' | 'host' | 'portable';
  metric: Metric;
  checkpoint_every: Cadence | null;
  keep: Keep;
  max_restarts: number;
  hang_timeout: number;
  on_log: LogPolicy[];
  env: 'current' | 'locked';
  until: number | null;
  data_at: Record<string, string>;
}

export interface Experiment {
  number: number;
  name: string;
  state: ExperimentState;
  owner: string;
  group: string;
  snapshot: string;
  config: Config;
  params: Record<string, Value>;
  python: string;
  cwd: string;
  notebook: string | null;
  rerun_of: number | null;
  begins_from: string | null;
  created_at: number;
  ended_at: number | null;
}

export interface Frame {
  file: string;
  line: number;
  function: string;
  text: string;
  cell: number | null;
  cell_line: number | null;
}

export interface Failure {
  rank: number;
  type: string;
  message: string;
  step: number | null;
  frames: Frame[];
  traceback: string;
  consequence: boolean;
  invalid: boolean;
  at: number;
}

export interface Trial {
  experiment: number;
  index: number;
  state: TrialState;
  holds: string[];
  params: Record<string, Value>;
  attempt: number;
  failures: number;
  queued_at: number;
  step: number;
  epoch: number;
  total_steps: number | null;
  checkpoint: string | null;
  metrics: Metrics;
  training: Metrics;
  failure: Failure | null;
  excluded: string[];
  ended_at: number | null;
}

export interface Share {
  node: string;
  kind: string;
  address: string;
  slots: number[];
}

export interface Attempt {
  experiment: number;
  trial: number;
  number: number;
  state: AttemptState;
  placement: Share[];
  resume_from: string | null;
  created_at: number;
  ended_at: number | null;
  outcome: Outcome | null;
  failure: Failure | null;
  accepted: number;
  backend: string | null;
  backend_reason: string | null;
  guarantee: string | null;
}

export interface Wait {
  reason: string;
  place: number;
  estimate: number | null;
}

export interface Overview {
  experiment: Experiment;
  trials: Trial[];
  attempts: Attempt[];
  wait: Wait | null;
  warnings: string[];
  seq: number;
}

export interface StoredReport {
  seq: number;
  trial: number;
  attempt: number;
  at: number;
  kind: Kind;
  step: number;
  epoch: number;
  metrics: Metrics;
}

interface About {
  seq: number;
  at: number;
  experiment: number;
  trial: number | null;
}

export type Message = About &
  (
    | { type: 'experiment'; data: Experiment }
    | { type: 'trial'; data: Trial }
    | { type: 'attempt'; data: Attempt }
    | { type: 'report'; data: StoredReport }
    | { type: 'note'; data: { text: string; level?: string; attempt?: number } }
  );

export interface Curve {
  kind: Kind;
  metric: string;
  size: number[];
  step: number[];
  epoch: number[];
  at: number[];
  mean: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
  broken: number[];
  last: Num | null;
}

export interface Curves {
  trial: number;
  curves: Curve[];
  seq: number;
}

export interface LogChunk {
  attempt: number;
  rank: number;
  text: string;
  offset: number;
  size: number;
  ended: boolean;
}

export interface NodeUse {
  name: string;
  kind: string;
  slots: number;
  used: number;
  devices: string[];
  healthy: boolean;
}

/** What a notebook's output holds under MIME_TYPE: enough to draw the experiment with no service at all. */
export interface Saved {
  version: 1;
  number: number;
  at: number; // when this was true: seconds since the epoch
  captured: string[]; // sentences about the submission
  names: string[]; // of the hyperparameters, in their order: notebooks are saved with sorted keys
  overview: Overview;
  curves: Curves | null;
}

export const MIME_TYPE = 'application/vnd.daylight.experiment+json';
