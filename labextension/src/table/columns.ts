/** Columns of the table of experiments, the order by one of them, and the values by which it is filtered. No DOM. */

import type { ExperimentRow, Value } from '../api/types';
import { num } from '../model/curves';
import { whenText } from '../model/dates';
import { duration, number, valueText } from '../model/text';
import type { Column } from '../view/sortedtable';

const MANY = 6; // hyperparameters that are shown unless the user chooses others
const SAMPLE = 100; // rows from whose texts the width of a column follows
const LEAST = 4; // of a column: its head has an arrow, too
const WIDEST = 34; // characters
const STARTED = 'started';

export interface TableColumn<Row = ExperimentRow> extends Column<Row> {
  readonly value: (row: Row) => Value; // to sort by; null if the row has none
  readonly falls: boolean; // the greatest first, when it is sorted by this column first
  readonly usual: boolean; // shown unless the user chose otherwise
}

/** Names of what rows have: hyperparameters with whether their values differ, and metrics with their own experiments'. */
export interface Names {
  readonly params: ReadonlyMap<string, boolean>;
  readonly best: ReadonlyMap<string, boolean>; // by metric: whether greater values are better
  readonly metrics: ReadonlySet<string>;
}

export function namesIn(rows: readonly ExperimentRow[]): Names {
  const first = new Map<string, Value>();
  const params = new Map<string, boolean>();
  const best = new Map<string, boolean>();
  const metrics = new Set<string>();
  for (const row of rows) {
    for (const name in row.params) {
      const value = row.params[name] ?? null;
      params.set(name, params.get(name) === true || (first.has(name) && !same(first.get(name), value)));
      first.set(name, value);
    }
    if (row.best !== null) {
      best.set(row.metric.name, row.metric.mode === 'max');
    }
    for (const name in row.metrics) {
      metrics.add(name);
    }
  }
  return { params, best, metrics };
}

function same(one: Value | undefined, other: Value): boolean {
  return one === other || (typeof one === 'object' && JSON.stringify(one) === JSON.stringify(other));
}

/** Return the columns that can be shown; `now` is the time for dates. */
export function columnsOf({ params, best, metrics }: Names, now: number): TableColumn[] {
  const varied = [...params].filter(([, differs]) => differs).map(([name]) => name);
  const shown = new Set(varied.slice(0, MANY));
  return [
    { ...numeric('number', row => row.number, String), head: '#' },
    plain('name', row => row.name),
    plain('state', row => row.standing),
    ...[...best].map(([name, greater]) =>
      numeric(`best ${name}`, row => (row.metric.name === name ? row.best : null), number, greater)
    ),
    ...[...params.keys()].map(name => ({
      ...plain(`param ${name}`, row => row.params[name] ?? null, name, shown.has(name)),
      numeric: true
    })),
    plain('tags', row => row.tags.join(' ')),
    numeric(
      STARTED,
      row => row.started_at ?? row.created_at,
      at => whenText(at, now)
    ),
    numeric('time', row => row.seconds, duration),
    plain('notebook', row => row.notebook?.split(/[/\\]/).pop() ?? '', 'notebook', false),
    ...[...metrics].map(name => numeric(`last ${name}`, row => metricOf(row, name), number, false, false))
  ];
}

export function plain<Row = ExperimentRow>(
  name: string,
  value: (row: Row) => Value,
  head = name,
  usual = true
): TableColumn<Row> {
  const cell = (row: Row): string => {
    const found = value(row);
    return found === null ? '' : valueText(found);
  };
  return { name, head, numeric: false, value, falls: false, usual, cell };
}

export function numeric<Row = ExperimentRow>(
  name: string,
  value: (row: Row) => number | null,
  text: (value: number) => string,
  falls = true,
  usual = true
): TableColumn<Row> {
  const cell = (row: Row): string => {
    const found = value(row);
    return found === null ? '' : text(found);
  };
  return { name, head: name, numeric: true, value, falls, usual, cell };
}

function metricOf(row: ExperimentRow, name: string): number | null {
  const found = row.metrics[name];
  return found === undefined ? null : num(found);
}

/** Return the value to filter by: of a hyperparameter, else the best or the newest of a metric; null if there is none. */
export function valueOf(row: ExperimentRow, name: string): Value {
  if (name === 'time') {
    return row.seconds;
  }
  if (name === 'number') {
    return row.number;
  }
  return row.params[name] ?? (row.metric.name === name ? row.best : null) ?? metricOf(row, name);
}

/** Return the rows in the order of a column; rows without a value are last, and equal ones stay in their order. */
export function sorted<Row>(rows: readonly Row[], column: TableColumn<Row>, falls: boolean): Row[] {
  const keyed = rows.map(row => ({ row, key: keyOf(column.value(row)) }));
  const sign = falls ? -1 : 1;
  keyed.sort(({ key }, { key: than }) => {
    if (key === null || than === null) {
      return Number(key === null) - Number(than === null);
    }
    if (typeof key !== typeof than) {
      return typeof key === 'number' ? -1 : 1;
    }
    return key === than ? 0 : key < than ? -sign : sign;
  });
  return keyed.map(({ row }) => row);
}

/** Return what compares as people count: `digits 9` before `digits 10`. */
function keyOf(value: Value): number | string | null {
  if (typeof value === 'number') {
    return Number.isNaN(value) ? null : value;
  }
  const text = value === null ? '' : valueText(value);
  return text === '' ? null : text.toLowerCase().replace(/\d+/g, digits => digits.padStart(12, '0'));
}

/** Return the widths of columns in characters, by a sample of the rows; they are never less than `before`. */
export function widthsOf(
  rows: readonly ExperimentRow[],
  columns: readonly TableColumn[],
  before: readonly number[]
): number[] {
  const step = Math.max(1, Math.ceil(rows.length / SAMPLE));
  return columns.map(({ head, numeric: digits, cell }, place) => {
    let widest = Math.max(head.length + 1, LEAST, before[place] ?? 0);
    for (let index = 0; index < rows.length; index += step) {
      const row = rows[index];
      const length = row ? cell(row).length : 0;
      widest = Math.max(widest, digits ? length : Math.ceil(0.9 * length) + 1); // digits are wider than letters
    }
    return Math.min(widest, WIDEST);
  });
}

/** Return the comma-separated values of rows, with the numbers in full and times as in ISO 8601. */
export function csvOf(rows: readonly ExperimentRow[], columns: readonly TableColumn[]): string {
  const texts = (row: ExperimentRow): string[] =>
    columns.map(({ name, value, cell }) => {
      const found = value(row);
      const at = name === STARTED && typeof found === 'number';
      return at ? new Date(1000 * found).toISOString() : typeof found === 'number' ? String(found) : cell(row);
    });
  const lines = [columns.map(({ name, head }) => (name === 'number' ? name : head)), ...rows.map(texts)];
  return lines.map(line => `${line.map(quoted).join(',')}\n`).join('');
}

function quoted(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
