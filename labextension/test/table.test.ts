/** The table of experiments: its columns, order, filter, groups and CSV, and how its rows are read. */

import type { ExperimentRow } from '../src/api/types';
import { LiveSettings } from '../src/panel/settings';
import { announce } from '../src/service/changes';
import { ServiceError, type Query } from '../src/service/source';
import { columnsOf, csvOf, namesIn, sorted, type TableColumn, widthsOf } from '../src/table/columns';
import { filterIn } from '../src/table/filter';
import { experimentGroups } from '../src/table/groups';
import { chosenIn } from '../src/table/remembered';
import { TableRows } from '../src/table/rows';

function row(number: number, more: Partial<ExperimentRow> = {}): ExperimentRow {
  return {
    number,
    name: `digits ${number}`,
    state: 'completed',
    standing: 'completed',
    result: '',
    created_at: 1000 * number,
    started_at: null,
    seconds: 60 * number,
    tags: [],
    notebook: null,
    params: {},
    metric: { name: 'loss', mode: 'min' },
    best: null,
    metrics: {},
    ...more
  };
}

const ROWS = [
  row(1, {
    params: { lr: 0.1, opt: 'sgd', seed: 7 },
    best: 0.5,
    metrics: { loss: 0.6, accuracy: 0.8 },
    tags: ['base']
  }),
  row(2, { params: { lr: 0.001, opt: 'adam', seed: 7 }, best: 0.2, metrics: { loss: 0.2, accuracy: 'NaN' } }),
  row(3, { metric: { name: 'accuracy', mode: 'max' }, best: 0.95, params: { lr: 0.01 }, tags: ['base', 'paper'] }),
  row(10, { state: 'failed', standing: 'failed: ValueError', name: 'Two, "moons"', notebook: 'C:\\work\\moons.ipynb' })
];
const NAMES = namesIn(ROWS);
const COLUMNS = columnsOf(NAMES, 10_000);

function column(name: string): TableColumn {
  const found = COLUMNS.find(each => each.name === name);
  if (!found) {
    throw new Error(`no column ${name}`);
  }
  return found;
}

const numbers = (rows: readonly ExperimentRow[]): number[] => rows.map(each => each.number);

describe('columns', () => {
  test('are those of all experiments, of hyperparameters that differ, and of the metric of each', () => {
    const usual = COLUMNS.filter(each => each.usual).map(each => each.name);
    expect(usual).toEqual([
      'number',
      'name',
      'state',
      'best loss',
      'best accuracy',
      'param lr',
      'param opt',
      'tags',
      'started',
      'time'
    ]);
    expect(COLUMNS.filter(each => !each.usual).map(each => each.name)).toEqual([
      'param seed',
      'notebook',
      'last loss',
      'last accuracy'
    ]);
  });

  test('show the best value only of the own metric of an experiment', () => {
    expect(ROWS.map(each => column('best loss').cell(each))).toEqual(['0.5', '0.2', '', '']);
    expect(ROWS.map(each => column('best accuracy').cell(each))).toEqual(['', '', '0.95', '']);
    expect(column('notebook').cell(row(1, { notebook: '/a/b.ipynb' }))).toBe('b.ipynb');
  });

  test('are as wide as their texts, within limits, and never become narrower', () => {
    const shown = [column('number'), column('name')];
    expect(widthsOf([row(1, { name: 'x'.repeat(90) })], shown, [])).toEqual([4, 34]);
    expect(widthsOf([], shown, [9, 12])).toEqual([9, 12]);
  });
});

describe('the order', () => {
  test('has numbers by value and texts as people count, both ways, with what has none last', () => {
    expect(numbers(sorted(ROWS, column('param lr'), false))).toEqual([2, 3, 1, 10]);
    expect(numbers(sorted(ROWS, column('param lr'), true))).toEqual([1, 3, 2, 10]);
    const named = [row(1, { name: 'run 10' }), row(2, { name: 'Run 9' }), row(3, { name: '' })];
    expect(numbers(sorted(named, column('name'), false))).toEqual([2, 1, 3]);
    expect(numbers(sorted([...ROWS].reverse(), column('last accuracy'), true))).toEqual([1, 10, 3, 2]); // NaN is no value
  });

  test('has the better or the newer first, where a column is pressed first', () => {
    const falls = ['best loss', 'best accuracy', 'started', 'name'].map(name => column(name).falls);
    expect(falls).toEqual([false, true, true, false]);
  });
});

describe('the filter', () => {
  const found = (text: string): number[] => {
    const { matches, problem } = filterIn(text, [...NAMES.params.keys(), ...NAMES.metrics]);
    expect(problem).toBe('');
    return numbers(ROWS.filter(matches));
  };
  const problem = (text: string): string => filterIn(text, ['lr', 'loss']).problem;

  test.each([
    ['', [1, 2, 3, 10]],
    ['lr < 0.01', [2]],
    ['lr<=0.01', [2, 3]],
    ['lr != 0.1', [2, 3]],
    ['opt=adam', [2]],
    ['accuracy > 0.9', [3]], // its best
    ['accuracy>=0.8', [1, 3]], // and of others their newest
    ['tag:base', [1, 3]],
    ['tag:BASE lr > 0.05', [1]],
    ['state:failed', [10]],
    ['notebook:moons', [10]],
    ['digits', [1, 2, 3]],
    ['"two, " MOONS', [10]],
    ['#3', [3]],
    ['number > 2', [3, 10]],
    ['time > 2min', [3, 10]],
    ['time<=120s', [1, 2]]
  ])('%s', (text, expected) => expect(found(text)).toEqual(expected));

  test('says what it does not understand, and applies the rest', () => {
    expect(problem('widht=64')).toBe(
      'No hyperparameter and no metric is called widht: there are lr, loss, time, number.'
    );
    expect(problem('lr <')).toBe('lr < lacks a value, such as 0.01.');
    expect(problem('lr < small')).toBe('small is no number: lr < takes one.');
    expect(problem('user:ada')).toBe('Before a colon stands tag, state or notebook, not user.');
    expect(problem('state:sleepy')).toMatch(/^No state is called sleepy: there are running, queued/);
    expect(problem('< 3')).toMatch(/^< has no name before it/);
    const { matches } = filterIn('lr < 0.01 widht=64', ['lr']);
    expect(numbers(ROWS.filter(matches))).toEqual([2]);
  });
});

test('groups have their counts, and an experiment is in that of each of its tags', () => {
  const of = (by: Parameters<typeof experimentGroups>[1]): [string, number[]][] =>
    experimentGroups(ROWS, by).map(({ title, rows }) => [title, numbers(rows)]);
  expect(of('')).toEqual([['', [1, 2, 3, 10]]]);
  expect(of('tag')).toEqual([
    ['base \u00b7 2', [1, 3]],
    ['paper \u00b7 1', [3]],
    ['no tag \u00b7 2', [2, 10]]
  ]);
  expect(of('state').map(([title]) => title)).toEqual(['completed \u00b7 3', 'failed \u00b7 1']);
  expect(of('notebook').map(([title]) => title)).toEqual(['moons.ipynb \u00b7 1', 'no notebook \u00b7 3']);
  expect(of('param:opt').map(([title]) => title)).toEqual([
    'opt = adam \u00b7 1',
    'opt = sgd \u00b7 1',
    'no opt \u00b7 2'
  ]);
});

test('CSV has the columns and rows that are shown, with numbers in full, times as in ISO 8601, and quotes', () => {
  const shown = ['number', 'name', 'best loss', 'started'].map(column);
  expect(csvOf([row(7, { best: 1 / 3 }), ROWS[3] ?? row(0)], shown)).toBe(
    'number,name,best loss,started\n' +
      '7,digits 7,0.3333333333333333,1970-01-01T01:56:40.000Z\n' +
      '10,"Two, ""moons""",,1970-01-01T02:46:40.000Z\n'
  );
});

test('what the browser remembers is read, whatever is stored', () => {
  const stored = { columns: { 'param lr': false, tags: 'no' }, sort: 'best loss', falls: false, group: 'tag' };
  expect(chosenIn(JSON.stringify(stored))).toEqual({ ...stored, columns: { 'param lr': false } });
  const first = { columns: {}, sort: 'number', falls: true, group: '' };
  for (const text of [null, '{', '7', '{"columns": 3, "group": []}']) {
    expect(chosenIn(text)).toEqual(first);
  }
});

describe('rows', () => {
  const asked: Query[] = [];
  let all: ExperimentRow[] = [];
  let seq = 0;
  let fault: ServiceError | null = null;
  let rows: TableRows;
  const pass = (seconds: number): Promise<void> => jest.advanceTimersByTimeAsync(1000 * seconds);
  const source = {
    get: (_: string, query: Query = {}): Promise<unknown> => {
      asked.push(query);
      if (fault) {
        return Promise.reject(fault);
      }
      const { before = Infinity, limit = 200, after } = query as Record<string, number>;
      const newer = all.filter(each => each.number < before && (after === undefined || each.created_at > after));
      return Promise.resolve({ rows: newer.slice(0, limit), seq });
    }
  };

  beforeEach(() => {
    jest.useFakeTimers();
    asked.length = 0;
    fault = null;
    all = Array.from({ length: 1500 }, (_, index) => row(1500 - index, { created_at: 0 }));
    seq = 5;
    rows = new TableRows(source, new LiveSettings(), () => undefined);
  });

  afterEach(() => {
    rows.dispose();
    jest.useRealTimers();
  });

  test('are read page by page, the first one short, and then only what has changed', async () => {
    rows.watched = true;
    await pass(0.01);
    expect(asked).toEqual([{ limit: 200 }, { limit: 1000, before: 1301 }, { limit: 1000, before: 301 }]);
    expect([rows.list.length, rows.list[0]?.number, rows.whole]).toEqual([1500, 1500, true]);

    all = [row(1501, { created_at: 6 }), row(3, { created_at: 6, state: 'deleted' })];
    announce(3); // by another part of the page
    await pass(0.01);
    expect(asked.at(-1)).toEqual({ limit: 1000, after: 5 });
    expect([rows.list.length, rows.list[0]?.number]).toEqual([1500, 1501]);
    expect(rows.list.some(each => each.number === 3)).toBe(false);
  });

  test('that were read stay while the service does not answer, and nothing is asked while they are hidden', async () => {
    rows.watched = true;
    await pass(0.01);
    fault = new ServiceError(503, 'away');
    await pass(20);
    expect([rows.error, rows.list.length]).toEqual(['away', 1500]);
    fault = null;
    await pass(20);
    expect(rows.error).toBe('');
    rows.watched = false;
    const count = asked.length;
    announce(3);
    await pass(60);
    expect(asked.length).toBe(count);
  });
});
