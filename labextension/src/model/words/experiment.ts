/** The words of `kernel_backend/model/experiment.py` as they look in JSON. */

import type { Value } from './record';
import type { Search } from './search';
import type { Space } from './space';
import type { ExperimentState } from './states';

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
  gather_loss: boolean;
  loader_workers: number | null;
  seed: number;
  rng: 'derived' | 'stream';
  reproducible: 'off' | 'host' | 'portable';
  metric: Metric;
  search: Search | null;
  checkpoint_every: Cadence | null;
  keep: Keep;
  max_restarts: number;
  on_nan: 'fail' | 'go-on';
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
