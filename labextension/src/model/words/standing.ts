/** The words of `kernel_backend/model/standing.py` as they look in JSON. */

import type { Metric } from './experiment';
import type { Num, Value } from './record';
import type { Search } from './search';
import type { TrialState } from './states';

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
