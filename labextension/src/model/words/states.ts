/** The words of `kernel_backend/model/states.py` as they look in JSON. */

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
