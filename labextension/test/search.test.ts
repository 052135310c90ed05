/** What is drawn of a search: where values stand, who is coloured how, and what is said beside it. */

import type { BracketStatus, ExperimentState, Space, SearchStatus, TrialRow } from '../src/api/types';
import { groupText, trialGroups } from '../src/view/search/trialgroups';
import { bars, importanceNote } from '../src/view/search/bars';
import { ladder, ladderText } from '../src/view/search/ladder';
import { incumbent, manyCurves } from '../src/view/search/lines';
import { fields, scatter } from '../src/view/search/pairs';
import { axesOf, geometry, parallel, within } from '../src/view/search/parallel';
import { notLoaded, problemText } from '../src/view/search/loadingproblem';
import { scaleValues } from '../src/view/search/scalekey';
import { choiceScale, linear, logarithmic, metricScale, paramScale, ranks, shade } from '../src/view/search/scale';
import { searchProgressText, searchSecondsLeft } from '../src/model/searchprogress';
import { partsOf, trialParts } from '../src/model/trialparts';
import type { Connection, Look } from '../src/service/watch';
import { mayHaveMore, steersFor } from '../src/view/search/steering';
import { pathOf, type Shape } from '../src/view/search/shapes';
import { columnsOf, directionOf, noteText } from '../src/view/search/columns';
import { asha, experiment, overview } from './fakes';

const SPACE: Space = {
  parameters: [
    {
      name: 'lr',
      domain: { type: 'range', low: 1e-4, high: 1e-1, whole: false, scale: 'log', count: null },
      when: null,
      each: null
    },
    { name: 'opt', domain: { type: 'choices', values: ['sgd', 'adam'] }, when: null, each: null },
    {
      name: 'momentum',
      domain: { type: 'range', low: 0, high: 0.99, whole: false, scale: 'linear', count: null },
      when: { name: 'opt', values: ['sgd'] },
      each: null
    },
    {
      name: 'width',
      domain: { type: 'range', low: 16, high: 128, whole: true, scale: 'log2', count: null },
      when: null,
      each: 'blocks'
    }
  ]
};

function row(trial: number, best: number | null, params: TrialRow['params'] = {}): TrialRow {
  return {
    trial,
    state: 'paused',
    params,
    unit: 1,
    value: best ?? 'NaN',
    best,
    best_unit: 1,
    until: 1,
    parent: null,
    attempts: 1,
    seconds: 2,
    diverged: best === null,
    failure: null
  };
}

const BRACKET: BracketStatus = {
  rungs: [
    {
      unit: 1,
      results: 4,
      went_on: 1,
      best: 0.1,
      cut: 0.1,
      entries: [
        [3, 0.1],
        [1, 0.2],
        [2, 0.3],
        [4, 0.4]
      ]
    },
    { unit: 4, results: 1, went_on: 0, best: 0.05, cut: null, entries: [[3, 0.05]] }
  ]
};

function standing(trials: TrialRow[], more: Partial<SearchStatus> = {}): SearchStatus {
  return {
    number: 12,
    search: asha,
    method: 'asha',
    unit: 'epoch',
    units: 4,
    metric: { name: 'error', mode: 'min' },
    params: ['lr', 'opt', 'momentum'],
    limit: 64,
    counts: { paused: trials.length },
    diverged: 0,
    trained: 8,
    usage: 'asha',
    spent: 12,
    elapsed: 60,
    closed: null,
    over: false,
    best: trials[0] ?? null,
    incumbent: [],
    brackets: [BRACKET],
    trials,
    ...more
  };
}

describe('what is said of importance', () => {
  const of = (trials: number, missing = ''): string =>
    importanceNote({ unit: 4, trials, shares: {}, missing }, 'epoch');

  test('has a word of doubt below 60 trials', () => {
    expect(of(59)).toMatch(/^What tells of the best tenth of 59 trials .* at epoch 4 .* From few trials/);
    expect(of(60)).not.toContain('few');
  });

  test('is why there is none, where there is none', () => {
    expect(of(9, '9 trials have a result to compare; 30 are needed')).toBe(
      '9 trials have a result to compare; 30 are needed'
    );
  });
});

test('an arrow says how the values of a column go: the better come first, which are the larger of an accuracy', () => {
  const [error, accuracy] = [{ name: 'error', mode: 'min' } as const, { name: 'accuracy', mode: 'max' } as const];
  expect([directionOf('best', 'best', error), directionOf('best', '-best', error)]).toEqual([
    'ascending',
    'descending'
  ]);
  expect(directionOf('best', 'best', accuracy)).toBe('descending');
  expect(directionOf('value', '-value', accuracy)).toBe('ascending');
  expect(directionOf('lr', 'lr', accuracy)).toBe('ascending');
  expect(directionOf('lr', 'best', accuracy)).toBeNull();
});

test('columns of numbers are known as such, and those of words are not', () => {
  const numeric = (params: TrialRow['params'][]): string[] =>
    columnsOf(standing(params.map((each, index) => row(index + 1, 0.5, each))))
      .filter(column => column.numeric)
      .map(column => column.name);
  expect(
    numeric([
      { lr: 0.1, opt: 'sgd' },
      { lr: 0.2, opt: 'adam', momentum: 0.9 }
    ])
  ).toEqual(['unit', 'best', 'value', 'lr', 'momentum', 'seconds']);
});

describe('data that could not be loaded', () => {
  test('is named with the reason, once for what has the same', () => {
    expect(
      problemText(
        new Map([
          ['importance', 'no answer in 30 s'],
          ['curves', 'no answer in 30 s'],
          ['trial', 'there is no trial 7']
        ] as const)
      )
    ).toBe(
      'Could not load importance, learning curves: no answer in 30 s; ' +
        'Could not load curves of the trial: there is no trial 7'
    );
  });

  test('is not said to be on its way', () => {
    const failed = new Map([['importance', 'no answer in 30 s']] as const);
    expect([notLoaded('importance', failed), notLoaded('curves', failed)]).toEqual(['could not be loaded', 'loading']);
  });
});

test('the key of colours has the values of the worst, the middle and the best trial, as ranks have', () => {
  const rows = [row(1, 0.3), row(2, 0.1), row(3, 0.9), row(4, null)];
  expect(scaleValues(rows, { name: 'error', mode: 'min' })).toEqual(['0.9', '0.3', '0.1']);
  expect(scaleValues(rows, { name: 'accuracy', mode: 'max' })).toEqual(['0.1', '0.3', '0.9']);
  expect(scaleValues([row(1, 0.3), row(2, null)], { name: 'error', mode: 'min' })).toBeNull();
});

function ofTrials(shapes: readonly Shape[]): (string | number | undefined)[] {
  return shapes.flatMap(shape => ('data-trial' in shape.props ? [shape.props['data-trial']] : []));
}

describe('scales', () => {
  test('a logarithmic range has its middle at the geometric mean, and its ends at the ends', () => {
    const { place } = paramScale('lr', SPACE, []);
    expect(place(1e-4)).toBeCloseTo(0, 10);
    expect(place(1e-1)).toBeCloseTo(1, 10);
    expect(place(Math.sqrt(1e-5))).toBeCloseTo(0.5, 10);
  });

  test('a choice stands in the middle of its share, and what is no choice nowhere', () => {
    const scale = paramScale('opt', SPACE, []);
    expect([scale.place('sgd'), scale.place('adam'), scale.place('lion'), scale.place(undefined)]).toEqual([
      0.25,
      0.75,
      null,
      null
    ]);
    expect(choiceScale([true, 1, '1']).place('1')).toBeCloseTo(5 / 6);
  });

  test('a block has the axis of its parameter; powers of two are choices', () => {
    expect(paramScale('blocks[2].width', SPACE, []).ticks.map(tick => tick.text)).toEqual(['16', '32', '64', '128']);
  });

  test('without a space the values make the axis', () => {
    expect(paramScale('x', { parameters: [] }, [2, 4]).place(3)).toBeCloseTo(0.5);
    expect(paramScale('x', { parameters: [] }, ['a', 3, 'a']).fields).toBe(2);
  });

  test.each([
    ['min', [1, 1.1, 1.2, 1.3, 1.1, 1.2, 1.05, 1.15, 1.2, 1.25, 1000]],
    ['max', [-1, -1.1, -1.2, -1.3, -1.1, -1.2, -1.05, -1.15, -1.2, -1.25, -1000]]
  ] as const)('one that is far worse does not squash the rest (%s)', (mode, values) => {
    const { place } = metricScale(values, { name: 'error', mode });
    const [good, poor] = [place(values[0]) ?? 0, place(values[3]) ?? 0];
    expect(Math.abs(good - poor)).toBeGreaterThan(0.5);
    expect(place(values[10])).toBe(mode === 'min' ? 1 : 0);
  });

  test('what is not finite has no part in an axis', () => {
    const { place } = metricScale([0.1, 'NaN', 'Infinity', null, 0.2], { name: 'error', mode: 'min' });
    expect(place(0.15)).toBeCloseTo(0.5);
  });

  test('ticks lie on their axis, and there are some', () => {
    for (const [low, high] of [
      [0, 1],
      [-3, 40],
      [0.001, 0.0011],
      [5, 5]
    ] as const) {
      const { ticks } = linear(low, high);
      expect(ticks.length).toBeGreaterThan(0);
      expect(ticks.every(tick => tick.at >= -1e-9 && tick.at <= 1 + 1e-9)).toBe(true);
    }
    expect(logarithmic(1e-4, 0.1).ticks.length).toBeGreaterThan(2);
  });
});

describe('colours', () => {
  test('the best has rank 1, the worst 0, and who has no result none', () => {
    const rows = [row(1, 0.3), row(2, 0.1), row(3, null), row(4, 0.2)];
    expect([...ranks(rows, { name: 'error', mode: 'min' })]).toEqual([
      [2, 1],
      [4, 0.5],
      [1, 0]
    ]);
    expect(ranks(rows, { name: 'error', mode: 'max' }).get(1)).toBe(1);
  });

  test('the better, the more of the colour', () => {
    expect(shade(1)).toContain('100%');
    expect(shade(0)).toContain(' 0%');
    expect(shade(null)).toBe('var(--dl-line)');
  });
});

describe('the ladder', () => {
  const drawn = ladder(standing([row(3, 0.05)]), BRACKET, 400, 240, 3);
  const dots = drawn.filter(shape => shape.tag === 'circle');

  test('has a dot a result, and who went on is told from who stayed', () => {
    expect(dots).toHaveLength(5);
    const wentOn = dots.filter(dot => String(dot.props.class).includes('dl-went-on'));
    expect(wentOn.map(dot => dot.props['data-trial'])).toEqual([3]);
  });

  test('lower values lie lower, and rungs from left to right', () => {
    const at = (trial: number): Shape | undefined => dots.find(dot => dot.props['data-trial'] === trial);
    expect(Number(at(3)?.props.cy)).toBeGreaterThan(Number(at(4)?.props.cy));
    const [first, second] = dots.filter(dot => dot.props['data-trial'] === 3);
    expect(Number(first?.props.cx)).toBeLessThan(Number(second?.props.cx));
  });

  test('joins the results of the trial that is looked at', () => {
    expect(drawn.filter(shape => shape.props.class === 'dl-way')).toHaveLength(1);
    expect(ladder(standing([]), BRACKET, 400, 240, 4).filter(shape => shape.props.class === 'dl-way')).toHaveLength(0);
  });

  test('is told in words', () => {
    expect(ladderText(BRACKET, 'epoch', { name: 'error', mode: 'min' })).toBe(
      'epoch 1: 4 results, 1 went on, best error 0.1; epoch 4: 1 result, 0 went on, best error 0.05'
    );
  });
});

test('the best so far only gets better, and its line goes on to now', () => {
  const steps = [0.5, 0.3, 0.2].map((value, index) => ({
    at: 10 * index,
    units: index + 1,
    trial: index,
    unit: 1,
    value
  }));
  const drawn = incumbent(standing([], { incumbent: steps }), 'time', 400, 200);
  const heights = drawn.filter(shape => shape.tag === 'circle').map(shape => Number(shape.props.cy));
  expect(heights).toEqual([...heights].sort((one, other) => one - other));
  const line = drawn.find(shape => shape.props.class === 'dl-best-line');
  expect(String(line?.props.d).endsWith(`390.0 ${heights.at(-1)?.toFixed(1)}`)).toBe(true);
});

test('the curves of the best are drawn last, on top of the others, and the chosen one above all', () => {
  const lines = [3, 1, 2].map(trial => ({ trial, state: 'paused' as const, unit: [1, 2], value: [0.5, trial / 10] }));
  const drawn = manyCurves(
    { unit: 'epoch', metric: { name: 'error', mode: 'min' }, of: 3, lines },
    standing([]),
    2,
    400,
    200
  );
  expect(ofTrials(drawn)).toEqual([2, 1, 3, 2]);
});

describe('parallel coordinates', () => {
  const rows = [row(1, 0.1, { lr: 1e-3, opt: 'sgd', momentum: 0.9 }), row(2, 0.4, { lr: 1e-2, opt: 'adam' })];
  const told = standing(rows);
  const axes = axesOf(told, SPACE);

  test('have an axis a hyperparameter, and the metric last', () => {
    expect(axes.map(axis => axis.name)).toEqual(['lr', 'opt', 'momentum', 'error']);
  });

  test('a trial without a hyperparameter goes on to the next axis', () => {
    const drawn = parallel(told, axes, new Map(), null, 600, 300);
    const corners = (trial: number): number =>
      String(drawn.find(shape => shape.props['data-trial'] === trial)?.props.d).split(/[ML]/).length - 1;
    expect([corners(1), corners(2)]).toEqual([4, 3]);
  });

  test('the best lies on top', () => {
    expect(ofTrials(parallel(told, axes, new Map(), null, 600, 300))).toEqual([2, 1]);
  });

  test('a brush chooses, and who does not have what is brushed is not chosen', () => {
    expect(rows.map(each => within(each, axes, new Map([['lr', [0, 0.4]]])))).toEqual([true, false]);
    expect(rows.map(each => within(each, axes, new Map([['momentum', [0, 1]]])))).toEqual([true, false]);
    expect(rows.map(each => within(each, axes, new Map()))).toEqual([true, true]);
  });

  test('a height is the share that it was drawn at', () => {
    const place = geometry(4, 600, 300);
    for (const share of [0, 0.25, 0.7, 1]) {
      expect(place.share(place.y(share))).toBeCloseTo(share, 2);
    }
    expect([place.nearest(place.x(2)), place.share(-100), place.share(1000)]).toEqual([2, 1, 0]);
  });
});

describe('pairs', () => {
  const rows = [
    row(1, 0.3, { lr: 1e-4, opt: 'sgd' }),
    row(2, 0.1, { lr: 1.1e-4, opt: 'sgd' }),
    row(3, 0.2, { lr: 0.09, opt: 'adam' }),
    row(4, null, { lr: 0.09, opt: 'adam' })
  ];
  const told = standing(rows, { params: ['lr', 'opt'] });
  const [lr, opt] = axesOf(told, SPACE);

  test('a field holds the trials that lie in it, the best first', () => {
    if (lr && opt) {
      const { columns, found } = fields(told, lr, opt);
      expect(columns).toBe(8);
      expect(found.map(field => [field.column, field.row, field.trials.map(each => each.trial)])).toEqual([
        [0, 0, [2, 1]],
        [7, 1, [3]]
      ]);
    }
    expect.assertions(2);
  });

  test('every trial that has both is a dot', () => {
    const drawn = lr && opt ? scatter(told, lr, opt, null, 400, 300) : [];
    expect(ofTrials(drawn).sort()).toEqual([1, 2, 3, 4]);
  });
});

describe('steering', () => {
  const paused = row(7, 0.1);
  const inState = (state: ExperimentState, connection: Connection = 'live'): Look => ({
    ...{ number: 12, curves: [], trial: 1, captured: [], search: null, error: null, heard: true, at: 100 },
    overview: overview({ experiment: experiment({ state }) }),
    connection
  });

  test.each([
    ['paused', ['promote', 'prune']],
    ['running', ['prune']],
    ['queued', ['prune']],
    ['stopping', []],
    ['completed', []],
    ['pruned', []],
    ['failed', []]
  ] as const)('of a trial that is %s: %j', (state, steers) => {
    expect(steersFor(inState('active'), { ...paused, state })).toEqual(steers);
    expect(steersFor(inState('paused'), { ...paused, state })).toEqual(steers);
  });

  test.each(['connecting', 'lost', 'ended', 'gone', 'foreign'] as const)('is not offered when %s', connection => {
    expect(steersFor(inState('active', connection), paused)).toEqual([]);
  });

  test('of a search that has ended no trial goes on, and only one that has completed may have more', () => {
    for (const state of ['stopping', 'stopped', 'completed', 'failed'] as const) {
      expect(steersFor(inState(state), paused)).toEqual([]);
      expect(mayHaveMore(inState(state, 'ended'))).toBe(state === 'completed');
    }
    expect(mayHaveMore(inState('active'))).toBe(false);
    expect(mayHaveMore(inState('completed', 'connecting'))).toBe(false);
    expect(mayHaveMore({ ...inState('completed', 'ended'), heard: false })).toBe(false); // a notebook's copy of it
  });
});

test('importances are bars by size, the largest first', () => {
  const told = { unit: 4, trials: 20, shares: { lr: 0.25, width: 0.75 }, missing: '' };
  const { shapes } = bars(told, 500);
  const names = shapes.filter(shape => shape.props.class === 'dl-axis-name').map(shape => shape.text);
  const lengths = shapes.filter(shape => shape.tag === 'rect').map(shape => Number(shape.props.width));
  expect(names).toEqual(['width', 'lr']);
  expect((lengths[0] ?? 0) / (lengths[1] ?? 1)).toBeCloseTo(3);
});

test('a path is interrupted where there is nothing', () => {
  expect(pathOf([[0, 1], [2, 3], null, [4, 5], [6, 7]])).toBe('M0.0 1.0L2.0 3.0M4.0 5.0L6.0 7.0');
});

test('the table has a column a hyperparameter, and says what is not shown', () => {
  const columns = columnsOf(standing([]));
  expect(columns.map(column => column.name)).toEqual([
    ...['trial', 'state', 'unit', 'best', 'value'],
    ...['lr', 'opt', 'momentum', 'seconds']
  ]);
  const failed = { ...row(7, null, { lr: 0.003 }), state: 'failed' as const, failure: 'KeyError' };
  expect(columns.map(column => column.cell(failed))).toEqual([
    ...['12.7', 'failed: KeyError', '1/4', '', 'nan'],
    ...['0.003', '', '', '2.0 s']
  ]);
  const [, state] = columns;
  const [, ofEnded] = columnsOf(standing([], { over: true }));
  expect([state?.cell(row(7, 0.5)), ofEnded?.cell(row(7, 0.5))]).toEqual(['paused', 'stopped early']);
  expect(noteText(10, 10, 10, 10)).toBe('');
  expect(noteText(200, 500, 500, 10000)).toBe('200 of 10000 trials are shown; job.trials() has them all');
  expect(noteText(3, 3, 10, 10)).toBe('3 of 10 trials lie within what was chosen');
});

describe('how far a search is', () => {
  const live = { ...row(7, 0.5), state: 'running' as const, seconds: 4 };
  const counts = { pruned: 1, paused: 3, completed: 2, running: 1 };

  test('its trials are told apart, and those that were paused have stopped early once it has ended', () => {
    const words = (more: Partial<SearchStatus>): string[] =>
      trialParts(standing([live], { counts, limit: 16, ...more })).map(part => part.text);
    expect(words({})).toEqual(['1 stopped early', '2 done', '1 running', '3 may go on', '9 to come']);
    expect(words({ over: true, counts: { paused: 3, completed: 2 } })).toEqual(['3 stopped early', '2 done']);
    expect(words({ limit: null })).not.toContain('9 to come');
  });

  test('the bar in a list has the trials of the overview', () => {
    const search = { ...asha, trials: 16 };
    const shown = overview({
      experiment: experiment({ config: { ...experiment().config, search } }),
      trial_counts: counts
    });
    expect(partsOf(shown).map(part => part.count)).toEqual([1, 2, 1, 3, 9]);
  });

  test('the time left follows from the slot time of trials that have come to rest', () => {
    // Six took 10 slot-seconds each: the running one has 6 to go, and nine are to come, on the two slots of one gang.
    const status = standing([live], { counts, limit: 16, spent: 64 });
    expect(searchSecondsLeft(status, 2)).toBeCloseTo((9 * 10 + 6) / 2);
    expect(searchProgressText(status, 2)).toMatch(/ \u00b7 9 to come \u00b7 about a minute left$/);
    const { search } = status;
    expect(searchSecondsLeft({ ...status, search: { ...search, max_time: 70 } }, 2)).toBeCloseTo(10);
    expect(searchSecondsLeft({ ...status, search: { ...search, budget: 72 } }, 2)).toBeCloseTo(4);
  });

  test.each([
    ['few trials have come to rest', { counts: { completed: 2, running: 1 } }],
    ['no trial holds slots', { counts: { completed: 4, queued: 1 } }],
    ['neither trials nor budget end it', { counts, limit: null }],
    ['it has ended', { counts, over: true }]
  ])('it is not estimated if %s', (_, more) => {
    expect(searchSecondsLeft(standing([live], { limit: 16, spent: 64, ...more }), 1)).toBeNull();
  });
});

describe('trials in groups of a hyperparameter', () => {
  const metric = { name: 'loss', mode: 'min' } as const;

  it('are in order of its values, those without it last, each group in the order of the table', () => {
    const rows = [row(1, 0.3, { width: 128 }), row(2, 0.1, { width: 64 }), row(3, 0.2, {}), row(4, 0.4, { width: 64 })];
    const groups = trialGroups(rows, 'width');
    expect(groups.map(({ title, rows }) => [title, rows.map(({ trial }) => trial)])).toEqual([
      ['width = 64', [2, 4]],
      ['width = 128', [1]],
      ['no width', [3]]
    ]);
    expect(groups.map(group => groupText(group, metric, 12))).toEqual([
      '2 trials, best loss 0.1 (12.2)',
      '1 trial, best loss 0.3 (12.1)',
      '1 trial, best loss 0.2 (12.3)'
    ]);
  });

  it('lie within intervals where it has many values, and each in one', () => {
    const rows = Array.from({ length: 100 }, (_, nth) => row(nth, null, { lr: (nth % 50) / 50 }));
    const groups = trialGroups(rows, 'lr');
    expect(groups).toHaveLength(12);
    expect(groups[0]?.title).toBe('lr from 0 to 0.06');
    expect(groups.flatMap(group => group.rows.map(({ trial }) => trial)).sort((one, two) => one - two)).toEqual(
      rows.map(({ trial }) => trial)
    );
    expect(groupText(groups[0] ?? { title: '', rows: [] }, metric, 12)).toBe('8 trials');
  });

  it('are grouped by a choice of texts, too', () => {
    const rows = [row(1, 1, { act: 'relu' }), row(2, 2, { act: 'gelu' }), row(3, 3, { act: true })];
    expect(trialGroups(rows, 'act').map(({ title }) => title)).toEqual(['act = gelu', 'act = relu', 'act = True']);
  });
});
