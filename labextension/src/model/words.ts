/**
 * The words of `kernel_backend/model/` as they look in JSON. A test compares their fields with the Python records.
 */

/** A number as JSON carries it: what is not finite travels as text. */
export type Num = number | 'NaN' | 'Infinity' | '-Infinity';
export type Value = boolean | number | string | null | Value[] | { [key: string]: Value };
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

export interface Search {
  method: 'single' | 'random' | 'grid' | 'sobol' | 'asha' | 'hyperband' | 'pbt' | 'tpe' | 'gp' | 'cmaes' | 'custom';
  trials: number | null;
  sampler: 'kde' | 'random' | 'sobol' | 'tpe' | 'gp' | 'cmaes' | null;
  stopping: boolean;
  eta: number;
  first_rung: number | null;
  brackets: 'aggressive' | 'standard' | 'conservative';
  population: number | null;
  interval: number | null;
  parallel: number | null;
  budget: number | null;
  max_time: number | null;
  source: string | null;
  warm: string[];
}

export interface Range {
  type: 'range';
  low: number;
  high: number;
  whole: boolean;
  scale: 'linear' | 'log' | 'log2';
  count: number | null;
}

export interface Choices {
  type: 'choices';
  values: Value[];
}

export interface When {
  name: string;
  values: Value[];
}

export interface Parameter {
  name: string;
  domain: Range | Choices;
  when: When | null;
  each: string | null;
}

export interface Space {
  parameters: Parameter[];
}

export interface Config {
  form: 'functions';
  slots: number;
  pool: string | null;
  one_node: boolean;
  group: string | null;
  priority: number;
  preemptible: boolean;
  max_time: number | null;
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
  search: Search | null;
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
  space: Space;
  python: string;
  cwd: string;
  notebook: string | null;
  rerun_of: number | null;
  begins_from: string | null;
  priority: number | null;
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

export interface Best {
  value: number;
  step: number;
  epoch: number;
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
  until: number | null;
  begins_from: string | null;
  checkpoint: string | null;
  metrics: Metrics;
  best: Best | null;
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
  earliest: number | null;
  latest: number | null;
}

export interface Overview {
  experiment: Experiment;
  trials: Trial[];
  trial_counts: Partial<Record<TrialState, number>>;
  attempts: Attempt[];
  wait: Wait | null;
  warnings: string[];
  artifacts_seq: number;
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

export interface Create {
  type: 'create';
  trial: number;
  params: Record<string, Value>;
  until: number;
  parent: number | null;
}

export interface Resume {
  type: 'resume';
  trial: number;
  until: number;
}

export interface Continue {
  type: 'continue';
  until: number;
}

export interface Pause {
  type: 'pause';
}

export interface Prune {
  type: 'prune';
}

export interface Complete {
  type: 'complete';
}

export interface Vacancy {
  type: 'vacancy';
}

export interface Reported {
  type: 'reported';
  trial: number;
  unit: number;
  value: Num;
  seq: number;
}

export interface Exited {
  type: 'exited';
  trial: number;
  reason: 'failed' | 'invalid' | 'pruned' | 'stopped';
}

export interface Told {
  type: 'told';
  trial: number;
  params: Record<string, Value>;
}

export interface Promoted {
  type: 'promoted';
  trial: number;
}

export interface Extended {
  type: 'extended';
  trials: number | null;
}

export interface Closed {
  type: 'closed';
  limit: 'budget' | 'max_time';
}

export interface Failed {
  type: 'failed';
  message: string;
}

/** A line of a search's log. */
export interface Entry {
  number: number;
  at: number;
  event: Vacancy | Reported | Exited | Told | Promoted | Extended | Closed | Failed;
  decision: Create | Resume | Continue | Pause | Prune | Complete | null;
}

export interface Artifact {
  trial: number;
  name: string;
  attempt: number;
  step: number;
  at: number;
  size: number;
  digest: string;
  media: string;
  file: string;
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
    | { type: 'artifact'; data: Artifact }
    | { type: 'search'; data: Entry }
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

export interface TrialRow {
  trial: number;
  state: TrialState;
  params: Record<string, Value>;
  unit: number;
  value: Num | null;
  best: number | null;
  best_unit: number | null;
  until: number | null;
  parent: number | null;
  attempts: number;
  seconds: number;
  diverged: boolean;
  failure: string | null;
}

export interface RungStanding {
  unit: number;
  results: number;
  went_on: number;
  best: number | null;
  cut: number | null;
  entries: [number, number][];
}

export interface BracketStanding {
  rungs: RungStanding[];
}

export interface Better {
  at: number;
  units: number;
  trial: number;
  unit: number;
  value: number;
}

export interface Standing {
  number: number;
  search: Search;
  method: Search['method'];
  unit: 'epoch' | 'step';
  units: number;
  metric: Metric;
  params: string[];
  limit: number | null;
  counts: Record<string, number>;
  diverged: number;
  trained: number;
  spent: number;
  elapsed: number;
  closed: 'budget' | 'max_time' | null;
  over: boolean;
  best: TrialRow | null;
  incumbent: Better[];
  brackets: BracketStanding[];
  trials: TrialRow[];
}

export interface TrialLine {
  trial: number;
  state: TrialState;
  unit: number[];
  value: (number | null)[];
}

export interface SearchCurves {
  unit: 'epoch' | 'step';
  metric: Metric;
  of: number;
  lines: TrialLine[];
}

export interface Importance {
  unit: number | null;
  trials: number;
  shares: Record<string, number>;
  missing: string;
}

export interface LogChunk {
  attempt: number;
  rank: number;
  text: string;
  offset: number;
  size: number;
  ended: boolean;
}

export interface NodeRun {
  slots: number;
  group: string;
  owner: string;
  experiment: number | null;
  trial: number | null;
  server: string | null; // of a notebook server its full name: `dave/`
  last_activity: number | null; // when something was last done in it
  take_back_at: number | null; // from when on it may be stopped for its slots, unless something is done there
}

export interface NodeUse {
  name: string;
  kind: string;
  slots: number;
  used: number;
  devices: string[];
  healthy: boolean;
  pool: string;
  address: string;
  drained: boolean;
  runs: NodeRun[];
}

/** A notebook server and the slots that it holds. */
export interface Server {
  owner: string;
  group: string;
  name: string;
  pool: string;
  node: string | null;
  slots: number;
  since: number;
  last_activity: number;
}

/** Who asks, and what they may. */
export interface Person {
  name: string;
  groups: string[];
  admin: boolean;
  submits: boolean;
}

export interface SlotHours {
  hours: number;
  window: number;
}

export interface Quota {
  weight: number;
  guarantee: number;
  limit: number | null;
  slot_hours: SlotHours | null;
  max_slots_per_trial: number | null;
  priority: number;
}

export interface Use {
  held: number;
  decayed: number;
  window: number | null;
}

export interface Account {
  kind: 'user' | 'group';
  name: string;
  quota: Quota;
  given: Quota | null;
  changed: Record<string, Value>;
  use: Use;
  members: string[];
  warnings: string[];
}

export interface Self {
  person: Person;
  accounts: Account[];
  servers: Server[];
}

export interface UseOverTime {
  at: number[];
  held: number[];
  quota: Quota;
}

export interface Waiting {
  pool: string;
  place: number;
  slots: number;
  queued_at: number;
  priority: number;
  owner: string;
  group: string;
  experiment: number | null;
  trial: number | null;
  name: string | null;
  wait: Wait | null;
  by_admin: boolean;
}

export interface Pool {
  name: string;
  engine: string;
  kinds: string[];
  slots: number;
  used: number;
  waiting: number;
}

export interface Deed {
  seq: number;
  at: number;
  who: string;
  act: string;
  on: string;
  detail: string;
}

/** How a search stood when a notebook was saved. */
export interface SavedSearch {
  standing: Standing;
  curves: SearchCurves;
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
  search: SavedSearch | null;
}

export const MIME_TYPE = 'application/vnd.daylight.experiment+json';
