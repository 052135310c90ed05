/** What in a notebook's output can be shown. */

import { savedIn } from '../src/saved';
import { attempt, curves, experiment, overview, report, saved, trial } from './fakes';

test('what stands in an output is taken as it is', () => {
  expect(savedIn(saved())).toEqual(saved());
});

test('an output of another version, of another shape or of two minds is not shown', () => {
  const strange = [null, 'text', [], {}, { ...saved(), version: 2 }, { ...saved(), number: 13 }];
  const broken = [...strange, { ...saved(), overview: null }, { ...saved(), at: 'noon' }];
  expect(broken.map(savedIn)).toEqual(broken.map(() => null));
});

test('hyperparameters come back in their order, which a saved notebook has lost', () => {
  const shown = overview({ experiment: experiment({ params: { depth: 2, lr: 0.1, width: 8 } }) });
  const params = savedIn({ ...saved({ overview: shown }), names: ['width', 'lr', 'gone'] })?.overview.experiment.params;
  expect(Object.entries(params ?? {})).toEqual([
    ['width', 8],
    ['lr', 0.1],
    ['depth', 2]
  ]);
});

test('sentences that are none and curves that are missing do no harm', () => {
  const { version, number, at, overview } = saved();
  expect(savedIn({ version, number, at, overview, captured: ['one', 2, null] })).toEqual({
    ...saved(),
    captured: ['one'],
    curves: null
  });
});

describe('how a search stood', () => {
  const row = { trial: 3, state: 'paused', params: { lr: 0.1 }, best: 0.1 };
  const rung = { unit: 1, results: 1, went_on: 0, best: 0.1, cut: null, entries: [[3, 0.1]] };
  const metric = { name: 'error', mode: 'min' };
  const standing = {
    ...{ number: 12, search: { method: 'asha' }, metric, params: ['lr'], counts: { paused: 1 }, best: row },
    ...{ incumbent: [], brackets: [{ rungs: [rung] }], trials: [row] }
  };
  const whole = { standing, curves: { metric, lines: [{ trial: 3, unit: [1], value: [0.1] }] } };

  test('is taken as it is', () => {
    expect(savedIn({ ...saved(), search: whole })?.search).toEqual(whole);
  });

  test.each([
    ['nothing', undefined],
    ['no rows', { ...whole, standing: { ...standing, trials: null } }],
    ['a row without hyperparameters', { ...whole, standing: { ...standing, trials: [{ ...row, params: null }] } }],
    ['a best that is none', { ...whole, standing: { ...standing, best: 3 } }],
    ['a rung without results', { ...whole, standing: { ...standing, brackets: [{ rungs: [{ unit: 1 }] }] } }],
    ['a line without values', { ...whole, curves: { metric, lines: [{ trial: 3 }] } }]
  ])('is left out where there is %s', (_, damaged) => {
    expect(savedIn({ ...saved(), search: damaged })).toEqual(saved());
  });
});

test.each([
  ['an experiment without a configuration', { ...overview(), experiment: { number: 12 } }],
  ['trials that are no list', { ...overview(), trials: { 1: trial() } }],
  ['a trial without metrics', { ...overview(), trials: [{ ...trial(), metrics: undefined }] }],
  ['a trial without training values', { ...overview(), trials: [{ ...trial(), training: undefined }] }],
  ['an attempt without a place', { ...overview(), attempts: [{ ...attempt(), placement: null }] }]
])('%s is damage and not shown', (_, damaged) => {
  expect(savedIn({ ...saved(), overview: damaged })).toBeNull();
});

test('damaged curves are left out, and the rest is shown', () => {
  const whole = curves(report(1));
  expect(savedIn({ ...saved(), curves: whole })?.curves).toEqual(whole);
  const damaged = { ...whole, curves: [{ ...whole.curves[0], mean: null }] };
  expect(savedIn({ ...saved(), curves: damaged })).toEqual(saved());
});
