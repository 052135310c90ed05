/** The words of `kernel_backend/model/search.py` as they look in JSON. */

import type { Num, Value } from './record';

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
