/** What several experiments were given and what came of them, side by side. */

import { stateOf } from '../model/overview';
import { duration, elapsed, epochText, number, paramsText } from '../model/text';
import type { Metrics, Num, Overview, Value } from '../model/words';
import type { Look } from '../service/watch';

export interface Row {
  readonly name: string;
  readonly values: readonly string[]; // one an experiment; empty where it has no such thing
  readonly differs: boolean;
}

export interface Rows {
  readonly title: string;
  readonly rows: readonly Row[];
}

type Known = Pick<Look, 'overview' | 'curves'>;

/** Hyperparameters, how each was trained, what it has reached and how far it is; `now` counts for those that go on. */
export function rowsOf(looks: readonly Known[], now: number): Rows[] {
  const overviews = looks.map(look => look.overview);
  const told = [
    { title: 'Hyperparameters', rows: union(overviews.map(each => texts(each?.experiment.params ?? {}))) },
    { title: 'Training', rows: union(overviews.map(trained)) },
    { title: 'Metrics', rows: metricRows(looks) },
    { title: 'Progress', rows: union(overviews.map(each => progress(each, now))) }
  ];
  return told.filter(({ rows }) => rows.length > 0);
}

type Told = Record<string, string>;

function texts(params: Record<string, Value>): Told {
  return Object.fromEntries(
    Object.entries(params).map(([name, value]) => [name, paramsText({ [name]: value }).slice(name.length + 1)])
  );
}

function trained(overview: Overview | null): Told {
  if (!overview) {
    return {};
  }
  const { epochs, batch_size, seed, slots } = overview.experiment.config;
  const backend = overview.attempts.filter(attempt => attempt.backend).at(-1)?.backend ?? '';
  return {
    epochs: String(epochs),
    'batch size': String(batch_size),
    seed: String(seed),
    slots: String(slots),
    ...(backend ? { backend } : {})
  };
}

/** What is validated; of the training too where an experiment has no more than that to be compared by. */
function metricRows(looks: readonly Known[]): Row[] {
  const validation = looks.map(validated);
  const training = looks.map(trainedTo);
  const needed = looks.some((_, index) => isEmpty(validation[index]) && !isEmpty(training[index]));
  return [...union(validation), ...(needed ? union(training) : [])];
}

function validated({ overview }: Known): Told {
  return named('validation', lossFirst(overview?.trials[0]?.metrics ?? {}));
}

/** The newest training value of each metric. */
function trainedTo({ curves }: Known): Told {
  const newest = curves.filter(curve => curve.kind === 'training' && curve.last !== null);
  return named('training', lossFirst(Object.fromEntries(newest.map(({ metric, last }) => [metric, last ?? 'NaN']))));
}

function named(kind: string, metrics: readonly [string, Num][]): Told {
  return Object.fromEntries(metrics.map(([name, value]) => [`${kind} ${name}`, number(value)]));
}

function isEmpty(told: Told | undefined): boolean {
  return Object.keys(told ?? {}).length === 0;
}

/** Metrics as they are listed: the loss before all others. */
export function lossFirst(metrics: Metrics): [string, Num][] {
  return Object.entries(metrics).sort(([one], [other]) => Number(other === 'loss') - Number(one === 'loss'));
}

function progress(overview: Overview | null, now: number): Told {
  const trial = overview?.trials[0];
  if (!overview || !trial) {
    return {};
  }
  const { config } = overview.experiment;
  return {
    state: stateOf(overview),
    epoch: epochText(trial.epoch, config.epochs).replace('epoch ', ''),
    step: String(trial.step),
    time: duration(Math.max(0, elapsed(overview, now)))
  };
}

function union(columns: readonly Told[]): Row[] {
  const names = [...new Set(columns.flatMap(column => Object.keys(column)))];
  return names.map(name => {
    const values = columns.map(column => (Object.hasOwn(column, name) ? (column[name] ?? '') : ''));
    return { name, values, differs: new Set(values).size > 1 };
  });
}
