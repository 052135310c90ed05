/** What several experiments were given and what came of them, side by side. */

import { stateOf } from '../model/overview';
import { duration, elapsed, epochText, number, paramsText } from '../model/text';
import type { Overview, Value } from '../model/words';

export interface Row {
  readonly name: string;
  readonly values: readonly string[]; // one an experiment; empty where it has no such thing
  readonly differs: boolean;
}

export interface Rows {
  readonly title: string;
  readonly rows: readonly Row[];
}

/** Hyperparameters, how each was trained, and results; `now` counts for those that go on. */
export function rowsOf(overviews: readonly (Overview | null)[], now: number): Rows[] {
  const told = [
    { title: 'Hyperparameters', rows: union(overviews.map(each => texts(each?.experiment.params ?? {}))) },
    { title: 'Training', rows: union(overviews.map(trained)) },
    { title: 'Results', rows: union(overviews.map(each => results(each, now))) }
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

function results(overview: Overview | null, now: number): Told {
  const trial = overview?.trials[0];
  if (!overview || !trial) {
    return {};
  }
  const { config } = overview.experiment;
  const metrics = Object.entries(trial.metrics).sort(
    ([one], [other]) => Number(other === 'loss') - Number(one === 'loss')
  );
  return {
    state: stateOf(overview),
    ...Object.fromEntries(metrics.map(([name, value]) => [`validation ${name}`, number(value)])),
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
