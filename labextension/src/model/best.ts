/** Compare results, by the rules of `kernel_backend/model/best.py`. */

import type { Best, Metric, StoredReport, Trial, TrialRow } from '../api/types';
import { num } from './curves';

/**
 * Return the better of the best value so far and one more validation, in any order of arrival; ties go to the earlier
 * step.
 */
export function better(best: Best | null, report: StoredReport, metric: Metric): Best | null {
  const said = report.metrics[metric.name];
  const value = said === undefined ? NaN : num(said);
  if (!Number.isFinite(value)) {
    return best;
  }
  const ahead = best === null ? -1 : lower(value, metric) - lower(best.value, metric) || report.step - best.step;
  return ahead < 0 ? { value, step: report.step, epoch: report.epoch } : best;
}

/** Return the trials that have a best value, best first; ties go to the lower index. */
export function bestFirst(trials: readonly Trial[], metric: Metric): Trial[] {
  return ranked(trials, metric, trial => [trial.index, trial.best?.value ?? null]);
}

/** Return the rows of a table that have a best value, best first; ties go to the lower index. */
export function bestRows(rows: readonly TrialRow[], metric: Metric): TrialRow[] {
  return ranked(rows, metric, row => [row.trial, row.best]);
}

/** Return the items that have a value, best first; ties go to the lower index. */
export function ranked<Item>(
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

/** Return which values of a validation metric are better: known of an experiment's own, and of a loss. */
export function modeOf(metric: string, own: Metric | undefined): Metric['mode'] | undefined {
  return own?.name === metric ? own.mode : metric === 'loss' ? 'min' : undefined;
}

/** Return a value, negated for mode `max`, so that lower is always better. */
function lower(value: number, { mode }: Metric): number {
  return mode === 'max' ? -value : value;
}
