/** The words of `kernel_backend/model/trial.py` as they look in JSON. */

import type { Metrics, Value } from './record';
import type { Share } from './resources';
import type { AttemptState, Outcome, TrialState } from './states';

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
