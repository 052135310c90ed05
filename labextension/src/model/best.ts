/** What is best: what `kernel_backend/model/best.py` says. */

import type { Best, Metric, StoredReport, Trial, TrialRow } from '../api/types';
import { num } from './curves';

/** The best so far after one more validation, in whatever order they are valueOf: of equal ones the earlier step. */
export function better(best: Best | null, report: StoredReport, metric: Metric): Best | null {
  const said = report.metrics[metric.name];
  const value = said === undefined ? NaN : num(said);
  if (!Number.isFinite(value)) {
    return best;
  }
  const ahead = best === null ? -1 : lower(value, metric) - lower(best.value, metric) || report.step - best.step;
  return ahead < 0 ? { value, step: report.step, epoch: report.epoch } : best;
}

/** The trials that have a best value; of equal ones the lower index goes first. */
export function bestFirst(trials: readonly Trial[], metric: Metric): Trial[] {
  return ranked(trials, metric, trial => [trial.index, trial.best?.value ?? null]);
}

/** The same of the rows of a table. */
export function bestRows(rows: readonly TrialRow[], metric: Metric): TrialRow[] {
  return ranked(rows, metric, row => [row.trial, row.best]);
}

function ranked<Item>(
  items: readonly Item[],
  metric: Metric,
  valueOf: (item: Item) => readonly [index: number, value: number | null]
): Item[] {
  const valued = items.flatMap(item => {
    const [index, value] = valueOf(item);
    return value === null ? [] : [{ item, index, value: lower(value, metric) }];
  });
  valued.sort((one, other) => one.value - other.value || one.index - other.index);
  return valued.map(({ item }) => item);
}

/** A value as values are compared: the lower is the better one. */
function lower(value: number, { mode }: Metric): number {
  return mode === 'max' ? -value : value;
}
