/** Convert a report of slot-hours, energy and cost to the cells of a table. */

import type { Spending, SpendingReport } from '../api/types';
import type { Column } from './table';

const MOST = 12; // rows; the CSV file has all of them
const TITLES: Record<SpendingReport['by'], string> = {
  month: 'Month',
  user: 'User',
  group: 'Group',
  experiment: 'Experiment'
};

export function titleOf(by: SpendingReport['by']): string {
  return TITLES[by];
}

/** Return the columns of the table; the column of the cost only if the cluster has a price. */
export function columnsOf({ by, total }: SpendingReport): Column[] {
  const numbers: Omit<Column, 'number'>[] = [
    { title: 'Slot-hours' },
    { title: 'Repeated (h)', hint: 'Slot-hours of steps repeated after a fault' },
    { title: 'Waiting (h)', hint: 'Slot-hours without training: starts, waits for a search' },
    { title: 'Pruned (h)', hint: 'Slot-hours of pruned trials' },
    { title: 'kWh' },
    ...(total.cost === null ? [] : [{ title: 'Cost' }])
  ];
  return [{ title: TITLES[by] }, ...numbers.map(column => ({ ...column, number: true }))];
}

/** Return the cells of each row (the newest months, else the largest rows), and of the total if there are several. */
export function rowsOf({ by, rows, total }: SpendingReport): string[][] {
  const shown = by === 'month' ? rows.slice(-MOST) : rows.slice(0, MOST);
  const all = rows.length > 1 ? [{ ...total, name: 'All' }] : [];
  return [...shown, ...all].map(row => cellsOf(row, total.cost !== null));
}

function cellsOf(row: Spending, priced: boolean): string[] {
  const hours = [row.slot_hours, row.repeated_hours, row.waiting_hours, row.pruned_hours];
  return [
    row.title ? `#${row.name} ${row.title}` : row.name,
    ...hours.map(each => each.toFixed(1)),
    known(row.kwh),
    ...(priced ? [known(row.cost)] : [])
  ];
}

function known(value: number | null): string {
  return value === null ? 'unknown' : value.toFixed(2);
}
