/** What the panel asks for, how often, and what it makes of settings, keys and names. */

import type { Overview } from '../src/api/types';
import {
  EVERYTHING,
  hasMoved,
  isActive,
  isNarrow,
  nextPause,
  numbersIn,
  numbersLabel,
  PAGE,
  queryFor
} from '../src/panel/list';
import { groupByIn } from '../src/panel/groupby';
import type { GroupBy } from '../src/panel/groupby';
import { groupParams, groupsOf, valuesOf } from '../src/panel/groups';
import { placeAfter } from '../src/view/arrowkeys';
import { DEFAULTS, settingsIn } from '../src/panel/settings';
import { done, experiment, overview, queued, trial } from './fakes';

const quiet = { failed: false, moved: false, active: false };

function pauses(first: number, refreshSeconds: number, count: number): number[] {
  const found = [first];
  for (let turn = 1; turn < count; turn += 1) {
    found.push(nextPause(found.at(-1) ?? first, refreshSeconds, quiet));
  }
  return found;
}

test('while something goes on the panel looks as often as the person wants', () => {
  expect(nextPause(15, 2, { ...quiet, active: true })).toBe(2);
  expect(nextPause(15, 2, { ...quiet, moved: true })).toBe(2);
});

test('while nothing changes it looks less and less often, down to every 15 seconds', () => {
  expect(pauses(2, 2, 8)).toEqual([2, 3, 4.5, 6.75, 10.125, 15, 15, 15]);
});

test('a service that does not answer is not asked more often', () => {
  expect(nextPause(10, 2, { failed: true, moved: true, active: true })).toBe(15);
});

test('it never looks more often than the person wants', () => {
  expect(pauses(60, 60, 3)).toEqual([60, 60, 60]);
});

test('what runs is active; what waits, is paused or has ended is not', () => {
  const paused = overview({ trials: [trial({ state: 'paused' })] });
  expect(isActive([done(), queued(), paused])).toBe(false);
  expect(isActive([done(), overview()])).toBe(true);
});

test('a newer number or another count is something new', () => {
  expect(hasMoved([overview({ seq: 5 })], [overview({ seq: 5 })])).toBe(false);
  expect(hasMoved([overview({ seq: 5 })], [overview({ seq: 6 })])).toBe(true);
  expect(hasMoved([overview()], [])).toBe(true);
});

test('only what narrows the list is asked for, page by page', () => {
  expect(queryFor(EVERYTHING)).toEqual({ limit: PAGE });
  expect(queryFor({ search: ' digits ', state: 'failed', notebook: null }, 951)).toEqual({
    search: 'digits',
    state: 'failed',
    before: 951,
    limit: PAGE
  });
});

test.each([
  ['nets/a.ipynb', 'nets/a.ipynb'],
  ['RTC:nets/a.ipynb', 'nets/a.ipynb']
])('a notebook that JupyterLab has as %s is asked for as %s', (path, asked) => {
  expect(queryFor({ ...EVERYTHING, notebook: path })).toEqual({ notebook: asked, limit: PAGE });
});

test('a filter is narrow when it leaves something out', () => {
  expect(isNarrow(EVERYTHING)).toBe(false);
  expect(isNarrow({ ...EVERYTHING, search: '  ' })).toBe(false);
  expect(isNarrow({ ...EVERYTHING, state: 'failed' })).toBe(true);
  expect(isNarrow({ ...EVERYTHING, notebook: 'a.ipynb' })).toBe(true);
});

test('a tab with many experiments is named by the first, and by how many there are', () => {
  expect(numbersLabel([3])).toBe('#3');
  expect(numbersLabel([3, 4, 12])).toBe('#3 · #4 · #12');
  expect(numbersLabel([3, 4, 12, 13])).toBe('#3 · #4 · #12 · #13');
  expect(numbersLabel([3, 4, 12, 13, 15])).toBe('#3 · #4 · #12 and 2 more');
});

test('arrow keys lead from one to the next and stay in the list', () => {
  const places = ['ArrowDown', 'ArrowUp', 'Home', 'End'].map(key => placeAfter(key, 1, 4));
  expect(places).toEqual([2, 0, 0, 3]);
  expect([placeAfter('ArrowUp', 0, 4), placeAfter('ArrowDown', 3, 4)]).toEqual([0, 3]);
  expect(placeAfter('Enter', 1, 4)).toBeNull();
});

test('numbers are found as people write them, each once', () => {
  expect(numbersIn('#12, #15 and 12')).toEqual([12, 15]);
  expect(numbersIn('digits')).toEqual([]);
  expect(numbersIn('0 99999999999')).toEqual([]);
});

test('settings are what a person wrote', () => {
  const own = { refreshSeconds: 5, writeBack: false, notices: false };
  const written = { ...own, smoothing: 0.6, logAxis: true, axis: 'time' };
  const view = { smoothing: 0.6, logAxis: true, axis: 'time' };
  expect(settingsIn(written)).toEqual({ ...own, view });
});

test('a setting that makes no sense is as by default', () => {
  const written = { refreshSeconds: 0, writeBack: 'yes', smoothing: 1, logAxis: 1, axis: 'mood' };
  expect(settingsIn(written)).toEqual(DEFAULTS);
  expect(settingsIn({})).toEqual(DEFAULTS);
});

describe('groups', () => {
  const of = (number: number, tags: string[], params: Overview['experiment']['params']): Overview =>
    overview({ experiment: experiment({ number, tags, params, notebook: `/home/dave/${number % 2}.ipynb` }) });
  const listed = [
    of(4, ['paper', 'wide'], { lr: 0.5, width: 8 }),
    of(3, ['wide'], { lr: 0.05, width: 8 }),
    of(2, [], { lr: 0.5, width: 8 }),
    of(1, [], { width: 8 })
  ];
  const grouped = (by: GroupBy): unknown[] =>
    groupsOf(listed, by, valuesOf).map(({ title, items }) => [title, ...items.map(each => each.experiment.number)]);

  test('by tag have an experiment for each of its tags, and those without one last', () => {
    expect(grouped('tag')).toEqual([
      ['paper', 4],
      ['wide', 4, 3],
      ['no tag', 2, 1]
    ]);
  });

  test('by hyperparameter are in the order of its values', () => {
    expect(grouped('param:lr')).toEqual([
      ['lr = 0.05', 3],
      ['lr = 0.5', 4, 2],
      ['no lr', 1]
    ]);
  });

  test('by notebook are named by its file; without a choice there is one', () => {
    expect(grouped('notebook')).toEqual([
      ['0.ipynb', 4, 2],
      ['1.ipynb', 3, 1]
    ]);
    expect(grouped('')).toEqual([['', 4, 3, 2, 1]]);
  });

  test('are offered for hyperparameters that have several values, and for the chosen one', () => {
    expect(groupParams(listed, '')).toEqual(['lr']);
    expect(groupParams([], 'param:depth')).toEqual(['depth']);
    expect([groupByIn('tag'), groupByIn('param:lr'), groupByIn('owner'), groupByIn(3)]).toEqual([
      'tag',
      'param:lr',
      '',
      ''
    ]);
  });
});
