/** Status of a search without a service, from the trials that a notebook has saved. */

import type { Overview, SearchStatus, Trial, TrialRow, Value } from '../../api/types';
import { bestRows } from '../../model/best';
import { num } from '../../model/curves';
import { countsOf, ended } from '../../model/overview';

/** Return the status; null if the experiment is no search. */
export function statusOf(overview: Overview): SearchStatus | null {
  const { experiment, trials } = overview;
  const { search, metric, steps, epochs } = experiment.config;
  if (search === null) {
    return null;
  }
  const names = experiment.space.parameters.filter(each => each.each === null).map(each => each.name);
  const rows = trials.map(trial => rowOf(trial, metric.name, names, steps !== null));
  const best = bestRows(rows, metric);
  return {
    number: experiment.number,
    search,
    method: search.method,
    unit: steps === null ? 'epoch' : 'step',
    units: steps ?? epochs,
    metric,
    params: names,
    limit: search.trials,
    counts: countsOf(overview),
    diverged: rows.filter(row => row.diverged).length,
    trained: rows.reduce((sum, row) => sum + row.unit, 0),
    spent: 0,
    usage: '',
    elapsed: (experiment.ended_at ?? experiment.created_at) - experiment.created_at,
    closed: null,
    over: ended(overview),
    best: best[0] ?? null,
    incumbent: [],
    brackets: [],
    trials: [...best, ...rows.filter(row => row.best === null)]
  };
}

/** Return the trial that is looked at unless the user selects another one: the best, else the first. */
export function frontTrial(status: SearchStatus | null): number | null {
  return status?.best?.trial ?? status?.trials[0]?.trial ?? null;
}

function rowOf(trial: Trial, metric: string, names: readonly string[], steps: boolean): TrialRow {
  const value = trial.metrics[metric] ?? null;
  const finite = value !== null && Number.isFinite(num(value));
  const searched = names.length ? names : Object.keys(trial.params);
  return {
    trial: trial.index,
    state: trial.state,
    params: Object.fromEntries(searched.flatMap(name => pair(name, trial.params[name]))),
    unit: steps ? trial.step : Math.floor(trial.epoch + 1e-6),
    value,
    best: trial.best?.value ?? null,
    best_unit: null,
    until: trial.until,
    parent: null,
    attempts: trial.attempt,
    seconds: 0,
    diverged: value !== null && !finite,
    failure: trial.state === 'failed' ? (trial.failure?.type ?? null) : null
  };
}

function pair(name: string, value: Value | undefined): [string, Value][] {
  return value === undefined ? [] : [[name, Array.isArray(value) ? value.length : value]];
}
