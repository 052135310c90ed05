/** Group the loaded trials of a search by a hyperparameter. No DOM. */

import type { Metric, TrialRow, Value } from '../../api/types';
import { bestRows } from '../../model/best';
import { number, valueText } from '../../model/text';

const MOST = 12; // groups; a hyperparameter with more values is grouped by intervals of them

/** Trial, or an experiment, with its hyperparameters. */
type Parametrised = Pick<TrialRow, 'params'>;

export interface TrialGroup<Row = TrialRow> {
  readonly title: string; // `width = 64`, or `lr from 0.001 to 0.01`
  readonly rows: readonly Row[]; // in the order of the table
}

/** Return the groups, in order of their values; trials without the hyperparameter come last. */
export function trialGroups<Row extends Parametrised>(rows: readonly Row[], name: string): TrialGroup<Row>[] {
  const having = rows.filter(row => row.params[name] !== undefined);
  const values = new Set(having.map(row => row.params[name]));
  const found =
    values.size > MOST && [...values].every(value => typeof value === 'number')
      ? byInterval(having, name)
      : [...byValue(having, name)]
          .sort(([, one], [, other]) => inOrder(one[0]?.params[name], other[0]?.params[name]))
          .map(([text, own]) => ({ title: `${name} = ${text}`, rows: own }));
  const without = rows.filter(row => row.params[name] === undefined);
  return without.length ? [...found, { title: `no ${name}`, rows: without }] : found;
}

/** Describe a group: `12 trials, best loss 0.034 (12.7)`. */
export function groupText({ rows }: TrialGroup, metric: Metric, experiment: number): string {
  const [best] = bestRows(rows, metric);
  const count = `${rows.length} trial${rows.length === 1 ? '' : 's'}`;
  return best && best.best !== null
    ? `${count}, best ${metric.name} ${number(best.best)} (${experiment}.${best.trial})`
    : count;
}

function byValue<Row extends Parametrised>(rows: readonly Row[], name: string): Map<string, Row[]> {
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const text = valueText(row.params[name] ?? null);
    const group = groups.get(text) ?? [];
    group.push(row);
    groups.set(text, group);
  }
  return groups;
}

/** Return groups of about equally many trials, by ascending numbers; equal numbers are in one group. */
function byInterval<Row extends Parametrised>(rows: readonly Row[], name: string): TrialGroup<Row>[] {
  const value = (row: Row): number => Number(row.params[name]);
  const sorted = rows.map(value).sort((one, other) => one - other);
  const bounds = Array.from({ length: MOST }, (_, nth) => sorted[Math.floor((nth * sorted.length) / MOST)] ?? 0);
  const starts = [...new Set(bounds)];
  return starts.flatMap((start, nth) => {
    const end = starts[nth + 1] ?? Infinity;
    const own = rows.filter(row => value(row) >= start && value(row) < end);
    const last = own.reduce((most, row) => Math.max(most, value(row)), -Infinity);
    return own.length ? [{ title: `${name} from ${valueText(start)} to ${valueText(last)}`, rows: own }] : [];
  });
}

function inOrder(one: Value | undefined, other: Value | undefined): number {
  return typeof one === 'number' && typeof other === 'number'
    ? one - other
    : valueText(one ?? null).localeCompare(valueText(other ?? null), 'en', { numeric: true });
}
