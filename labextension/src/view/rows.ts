/** Hyperparameters and results of several experiments, side by side. */

import type { Kind, Metric, Metrics, Num, Overview, Trial, Value } from '../api/types';
import { modeOf } from '../model/best';
import { num } from '../model/curves';
import { frontOf } from '../model/overview';
import {
  duration,
  elapsed,
  epochText,
  knownEpochs,
  lossFirst,
  number,
  paramsText,
  slotsText,
  stateWord
} from '../model/text';

export interface Row {
  readonly name: string;
  readonly values: readonly string[]; // one per experiment; empty if it has none
  readonly differs: boolean;
  readonly best?: number | undefined; // index of the better value of a metric
}

export interface Rows {
  readonly title: string;
  readonly rows: readonly Row[];
}

/**
 * Return rows of hyperparameters, configuration, results and progress; `now` is used for running experiments.
 *
 * Hyperparameters and settings that differ come first.
 */
export function rowsOf(overviews: readonly (Overview | null)[], now: number): Rows[] {
  const told = [
    { title: 'Hyperparameters', rows: differingFirst(union(overviews.map(each => texts(paramsOf(each))))) },
    { title: 'Training', rows: differingFirst(union(overviews.map(trained))) },
    { title: 'Metrics', rows: metricRows(overviews) },
    { title: 'Progress', rows: union(overviews.map(each => progress(each, now))) }
  ];
  return told.filter(({ rows }) => rows.length > 0);
}

/** Return the hyperparameters of an experiment; of a search, those of its best trial. */
function paramsOf(overview: Overview | null): Record<string, Value> {
  const found = overview?.experiment.config.search ? frontOf(overview)?.params : undefined;
  return { ...overview?.experiment.params, ...found };
}

function differingFirst(rows: readonly Row[]): Row[] {
  return [...rows].sort((one, other) => Number(other.differs) - Number(one.differs));
}

type ParamTexts = Record<string, string>;

function texts(params: Record<string, Value>): ParamTexts {
  return Object.fromEntries(
    Object.entries(params).map(([name, value]) => [name, paramsText({ [name]: value }).slice(name.length + 1)])
  );
}

function trained(overview: Overview | null): ParamTexts {
  if (!overview) {
    return {};
  }
  const { epochs, batch_size, auto_batch, seed } = overview.experiment.config;
  const backend = overview.attempts.filter(attempt => attempt.backend).at(-1)?.backend ?? '';
  return {
    epochs: String(epochs),
    'batch size': auto_batch ? String(overview.found_batch_size ?? 'auto') : String(batch_size),
    seed: String(seed),
    slots: slotsText(overview),
    ...(backend ? { backend } : {})
  };
}

/** Return rows of the best value, of newest validation metrics, and of training metrics if an experiment has no others. */
function metricRows(overviews: readonly (Overview | null)[]): Row[] {
  const trials = overviews.map(each => (each ? frontOf(each) : undefined));
  const best = overviews.map((each, place) => bestOf(each, trials[place]));
  const validation = trials.map(trial => named('validation', trial?.metrics));
  const training = trials.map(trial => named('training', trial?.training));
  const unvalidated = trials.some(trial => trial && isEmpty(trial.metrics) && !isEmpty(trial.training));
  const metrics = overviews.flatMap(each => (each ? [each.experiment.config.metric] : []));
  const marked = union(validation).map(row => {
    const metric = row.name.slice('validation '.length);
    const values = trials.map(trial => trial?.metrics[metric] ?? null);
    return {
      ...row,
      best: betterOf(
        values,
        modeOf(
          metric,
          metrics.find(({ name }) => name === metric)
        )
      )
    };
  });
  return [...union(best), ...marked, ...(unvalidated ? union(training) : [])];
}

/** Return the index of the single best of several values; undefined if there is none. */
function betterOf(values: readonly (Num | null)[], mode: Metric['mode'] | undefined): number | undefined {
  const known = values.map(value => (value === null ? NaN : num(value))).filter(Number.isFinite);
  const best = mode === 'max' ? Math.max(...known) : Math.min(...known);
  const places = values.flatMap((value, index) => (value !== null && num(value) === best ? [index] : []));
  return mode !== undefined && known.length > 1 && places.length === 1 ? places[0] : undefined;
}

function bestOf(overview: Overview | null, trial: Trial | undefined): ParamTexts {
  return overview && trial?.best
    ? { [`best ${overview.experiment.config.metric.name}`]: number(trial.best.value) }
    : {};
}

function named(kind: Kind, metrics: Metrics = {}): ParamTexts {
  return Object.fromEntries(lossFirst(metrics).map(([name, value]) => [`${kind} ${name}`, number(value)]));
}

function isEmpty(metrics: Metrics): boolean {
  return Object.keys(metrics).length === 0;
}

function progress(overview: Overview | null, now: number): ParamTexts {
  const trial = overview ? frontOf(overview) : undefined;
  if (!overview || !trial) {
    return {};
  }
  const { config } = overview.experiment;
  return {
    state: stateWord(overview),
    epoch: epochText(trial.epoch, knownEpochs(config)).replace('epoch ', ''),
    step: String(trial.step),
    time: duration(Math.max(0, elapsed(overview, now)))
  };
}

function union(columns: readonly ParamTexts[]): Row[] {
  const names = [...new Set(columns.flatMap(column => Object.keys(column)))];
  return names.map(name => {
    const values = columns.map(column => (Object.hasOwn(column, name) ? (column[name] ?? '') : ''));
    return { name, values, differs: new Set(values).size > 1 };
  });
}
