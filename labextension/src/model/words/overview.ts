/** The words of `kernel_backend/model/overview.py` as they look in JSON. */

import type { Experiment } from './experiment';
import type { TrialState } from './states';
import type { Attempt, Trial } from './trial';

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
