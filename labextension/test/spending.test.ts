/** The table of slot-hours, energy and cost. */

import type { Spending, SpendingReport } from '../src/api/types';
import { columnsOf, rowsOf } from '../src/page/spending';

function spending(fields: Partial<Spending> = {}): Spending {
  const lost = { repeated_hours: 1, waiting_hours: 0.25, pruned_hours: 2 };
  return { name: 'dave', title: '', slot_hours: 8, ...lost, kwh: null, measured_hours: 0, cost: null, ...fields };
}

function report(fields: Partial<SpendingReport> = {}): SpendingReport {
  return { by: 'user', since: null, until: 1, rows: [spending()], total: spending(), ...fields };
}

test('without a price there is no column of the cost, and unknown energy is said', () => {
  expect(columnsOf(report()).map(column => column.title)).toEqual([
    'User',
    'Slot-hours',
    'Repeated (h)',
    'Waiting (h)',
    'Pruned (h)',
    'kWh'
  ]);
  expect(rowsOf(report())).toEqual([['dave', '8.0', '1.0', '0.3', '2.0', 'unknown']]);
});

test('several rows have a total, and experiments their number and name', () => {
  const rows = [spending({ name: '7', title: 'digits', cost: 2, kwh: 1.5 }), spending({ name: '8', title: 'x' })];
  const found = report({ by: 'experiment', rows, total: spending({ cost: 2, kwh: 1.5 }) });
  expect(rowsOf(found).map(cells => [cells[0], cells[5], cells[6]])).toEqual([
    ['#7 digits', '1.50', '2.00'],
    ['#8 x', 'unknown', 'unknown'],
    ['All', '1.50', '2.00']
  ]);
});

test('of many months the newest are shown, of others the largest', () => {
  const rows = Array.from({ length: 30 }, (_, index) => spending({ name: `${index}` }));
  expect(rowsOf(report({ by: 'month', rows })).map(cells => cells[0])).toEqual([
    ...Array.from({ length: 12 }, (_, index) => `${index + 18}`),
    'All'
  ]);
  expect(rowsOf(report({ rows }))[0]?.[0]).toBe('0');
});
