/** What a view decides without drawing: buttons, the share that is done, compared lines and rows. */

import type { Curve, ExperimentState, Metrics, Overview, Search, TrialState } from '../src/api/types';
import type { Look } from '../src/service/watch';
import { stateOf } from '../src/model/overview';
import { progressText } from '../src/model/text';
import { verbsFor } from '../src/view/verbs';
import { failureOf } from '../src/view/failure';
import { alone, beginning, colourOf, newestStep, overlaid } from '../src/view/plotted';
import { shareDone } from '../src/view/progress';
import { rowsOf } from '../src/view/rows';
import { DEFAULTS } from '../src/view/settings';
import { attempt, curves, experiment, overview, report, trial } from './fakes';

function look(fields: Partial<Look> = {}): Look {
  const shown = { overview: overview(), curves: curves(report(1), report(2)).curves, captured: [], search: null };
  return { number: 12, connection: 'live', heard: true, error: null, at: 100, trial: 1, ...shown, ...fields };
}

function validation(metric = 'loss'): Curve {
  const [curve] = curves(report(2)).curves;
  if (!curve) {
    throw new Error('there is no curve');
  }
  return { ...curve, kind: 'validation', metric };
}

describe('buttons', () => {
  const inState = (state: ExperimentState, ofTrial: TrialState): Look =>
    look({ overview: overview({ experiment: experiment({ state }), trials: [trial({ state: ofTrial })] }) });

  test.each([
    ['active', 'queued', ['pause', 'stop']],
    ['active', 'paused', ['pause', 'stop']], // held by the engine, or by its search
    ['active', 'running', ['pause', 'stop']],
    ['active', 'releasing', ['stop']],
    ['paused', 'paused', ['resume', 'stop']],
    ['paused', 'releasing', ['resume', 'stop']],
    ['stopping', 'stopping', []],
    ['completed', 'completed', ['delete']],
    ['failed', 'failed', ['delete']]
  ] as const)('an experiment that is %s, its trial %s, offers %j', (state, ofTrial, offered) => {
    expect(verbsFor(inState(state, ofTrial))).toEqual(offered);
  });

  test('one that is deleted can be brought back, and says so', () => {
    const deleted = overview({ experiment: experiment({ state: 'completed', deleted_at: 90 }) });
    expect(verbsFor(look({ overview: deleted }))).toEqual(['undelete']);
    expect(stateOf(deleted)).toBe('deleted');
  });

  test('an experiment that is not known here cannot be acted on', () => {
    expect(verbsFor(look({ overview: null }))).toEqual([]);
    expect(verbsFor(look({ connection: 'gone' }))).toEqual([]);
    expect(verbsFor(look({ connection: 'foreign' }))).toEqual([]);
  });
});

describe('progress', () => {
  test('is counted in steps, and in epochs where nobody knows how many steps there are', () => {
    expect(shareDone(trial({ step: 250, total_steps: 1000 }), 10)).toBe(0.25);
    expect(shareDone(trial({ epoch: 5, total_steps: null }), 10)).toBe(0.5);
    expect(shareDone(trial({ epoch: 11, total_steps: null }), 10)).toBe(1);
  });

  test('is not known where only the program knows when it ends', () => {
    expect(shareDone(trial({ epoch: 5, total_steps: null }), null)).toBeNull();
    expect(shareDone(trial({ epoch: 5, step: 250, total_steps: 1000 }), null)).toBe(0.25);
    const asked = { ...experiment().config, epochs_unknown: true };
    expect(progressText(trial({ epoch: 2.5, step: 20, total_steps: null }), asked, null)).toBe('epoch 3  step 20');
  });

  test('of a completed trial is all', () => {
    expect(shareDone(trial({ state: 'completed', step: 999 }), 10)).toBe(1);
  });
});

test('a failure is shown once it is final, not while another attempt goes on', () => {
  const about = { rank: 0, type: 'ValueError', message: 'boom', step: null, frames: [], traceback: '' };
  const failure = { ...about, consequence: false, invalid: false, at: 100 };
  expect(failureOf(overview({ trials: [trial({ state: 'failed', failure })] }))).toBe(failure);
  expect(failureOf(overview({ trials: [trial({ state: 'queued', failure })] }))).toBeNull();
  expect(failureOf(null)).toBeNull();
});

describe('plots', () => {
  test('are made again only where a curve or a setting has changed', () => {
    const accuracy = validation('accuracy');
    const before = alone(look({ curves: [validation(), accuracy] }), DEFAULTS);
    const after = alone(look({ curves: [validation(), accuracy] }), DEFAULTS);
    const same = before.map((each, index) => each.from.every((part, at) => part === after[index]?.from[at]));
    expect(same).toEqual([false, true]);
  });

  test('mark the best validation of the metric and of the loss, whose better values are known', () => {
    const accuracy = { ...experiment().config, metric: { name: 'accuracy', mode: 'max' as const } };
    const known = overview({ experiment: experiment({ config: accuracy }) });
    const told = [...curves(report(1), report(2)).curves, ...['loss', 'accuracy', 'f1'].map(validation)].map(each => ({
      ...each,
      low: [0.1, 0.2],
      high: [0.1, 0.2]
    }));
    const marked = alone(look({ overview: known, curves: told }), DEFAULTS).map(each => [
      each.metric,
      ...each.make().picture.lines.map(({ best }) => best?.value)
    ]);
    expect(marked).toEqual([
      ['loss', undefined, 0.1],
      ['accuracy', 0.2],
      ['f1', undefined]
    ]);
  });

  test('say why an axis is not logarithmic', () => {
    const zero = { ...validation(), mean: [0], low: [0] };
    const made = alone(look({ curves: [zero, validation('f1')] }), { ...DEFAULTS, logAxis: true }).map(each =>
      each.make()
    );
    expect(made.map(each => each.picture.log)).toEqual([false, true]);
    expect(made.map(each => each.note)).toEqual(['no log axis here: there are values of zero or less', '']);
  });

  const of = (known: Overview | null, told: readonly Curve[], index = 1): Look =>
    look({ overview: known, curves: told, trial: index });

  test('begin their time with the first attempt, else with the first report', () => {
    const told = curves(report(7)).curves;
    expect(beginning(of(overview({ attempts: [attempt(1, { created_at: 103 }), attempt(2)] }), told))).toBe(103);
    expect(beginning(of(overview({ attempts: [attempt(2, { created_at: 900 })] }), told))).toBe(107);
    expect(beginning(of(null, []))).toBe(0);
  });

  test('have come to the newest step of the training, or to the step of the trial where there are none', () => {
    expect(newestStep(of(overview(), curves(report(1), report(9)).curves))).toBe(9);
    expect(newestStep(of(overview({ trials: [trial({ step: 7 })] }), []))).toBe(7);
  });

  test('of a search are of the trial whose curves they are', () => {
    const attempts = [attempt(1, { created_at: 103 }), attempt(1, { trial: 3, created_at: 150 })];
    const search = overview({ trials: [trial({ step: 7 }), trial({ index: 3, step: 5 })], attempts });
    expect(beginning(of(search, [], 3))).toBe(150);
    expect(newestStep(of(search, [], 3))).toBe(5);
  });
});

describe('compared experiments', () => {
  const two = [look({ curves: [...look().curves, validation()] }), look({ number: 15, curves: [validation('f1')] })];

  test('have a colour each, and a dash for training where validation is shown too', () => {
    const [loss] = overlaid(two, DEFAULTS, false);
    expect(loss?.make().picture.lines.map(({ label, colour, dashed }) => [label, colour, dashed])).toEqual([
      ['#12 training', 'one', true],
      ['#12 validation', 'one', false]
    ]);
  });

  const labels = (looks: Look[]): unknown[] =>
    overlaid(looks, DEFAULTS, true).map(each => each.make().picture.lines.map(line => line.label));
  const unvalidated = (): Look => look({ number: 15, curves: curves(report(3)).curves });

  test('show their validation alone; what has none keeps its training', () => {
    expect(labels(two)).toEqual([['#12'], ['#15']]);
    expect(labels([look(), unvalidated()])).toEqual([['#12 training', '#15 training']]);
    expect(labels([look({ curves: [...look().curves, validation()] }), unvalidated()])).toEqual([
      ['#12', '#15 training']
    ]);
  });

  test('show first the metrics that more of them have, and the loss before its equals', () => {
    const all = [
      look({ number: 1, curves: [validation('mine'), validation('also'), validation('f1')] }),
      look({ number: 2, curves: [validation('f1'), validation('loss')] }),
      look({ number: 3, curves: [validation('f1'), validation('loss'), validation('also')] })
    ];
    expect(overlaid(all, DEFAULTS, true).map(each => each.metric)).toEqual(['f1', 'loss', 'also', 'mine']);
  });

  test('are told apart by the rows that differ', () => {
    const one = overview({ experiment: experiment({ params: { lr: 0.1, name: 'a' }, ended_at: 160 }) });
    const other = overview({ experiment: experiment({ number: 15, params: { lr: 0.2, name: 'a', depth: 3 } }) });
    const [params, , progress] = rowsOf([one, other], 130);
    expect(params).toEqual({
      title: 'Hyperparameters',
      rows: [
        { name: 'lr', values: ['0.1', '0.2'], differs: true },
        { name: 'depth', values: ['', '3'], differs: true },
        { name: 'name', values: ["'a'", "'a'"], differs: false }
      ]
    });
    expect(progress?.rows.at(-1)).toEqual({ name: 'time', values: ['1 min 00 s', '30 s'], differs: true });
  });

  test('have the batch size that was found, as soon as it is', () => {
    const config = { ...experiment().config, auto_batch: { most: null } };
    const auto = experiment({ config });
    const shown = [overview({ experiment: auto }), overview({ experiment: auto, found_batch_size: 96 }), overview()];
    const row = rowsOf(shown, 130).flatMap(({ rows }) => rows.filter(({ name }) => name === 'batch size'));
    expect(row.map(({ values }) => values)).toEqual([['auto', '96', '32']]);
  });

  test('have their metrics together, the loss first, before how far they are', () => {
    const reached = (metrics: Metrics): Overview => overview({ trials: [trial({ metrics })] });
    const [, metrics, progress] = rowsOf([reached({ f1: 0.5, loss: 2 }), reached({ error: 'NaN' })], 130);
    expect([metrics?.title, progress?.title]).toEqual(['Metrics', 'Progress']);
    expect(metrics?.rows.map(({ name, values }) => [name, ...values])).toEqual([
      ['validation loss', '2', ''],
      ['validation f1', '0.5', ''],
      ['validation error', '', 'nan']
    ]);
    expect(progress?.rows.map(({ name }) => name)).toEqual(['state', 'epoch', 'step', 'time']);
  });

  test('have the better value of a metric marked, where it is known which is better, and which is one', () => {
    const config = { ...experiment().config, metric: { name: 'accuracy', mode: 'max' as const } };
    const of = (metrics: Metrics): Overview =>
      overview({ experiment: experiment({ config }), trials: [trial({ metrics })] });
    const best = (...shown: Overview[]): unknown[] =>
      rowsOf(shown, 130)
        .filter(({ title }) => title === 'Metrics')
        .flatMap(({ rows }) => rows.map(row => [row.name.split(' ')[1], row.best]));
    expect(best(of({ loss: 0.5, accuracy: 0.9, f1: 0.3 }), of({ loss: 0.6, accuracy: 0.95, f1: 0.4 }))).toEqual([
      ['loss', 0],
      ['accuracy', 1],
      ['f1', undefined]
    ]);
    expect(best(of({ loss: 0.5 }), of({ loss: 0.5 }))).toEqual([['loss', undefined]]);
    expect(best(of({ loss: 0.5 }), of({ loss: 'NaN' }))).toEqual([['loss', undefined]]);
  });

  test('are told by their training too where one has not been validated', () => {
    const known = overview({ trials: [trial({ metrics: { loss: 2 }, training: { loss: 0.5 } })] });
    const unvalidated = overview({ trials: [trial({ training: { loss: 0.25 } })] });
    const named = (...shown: Overview[]): unknown[] =>
      rowsOf(shown, 130).flatMap(({ title, rows }) =>
        title === 'Metrics' ? rows.map(({ name, values }) => [name, ...values]) : []
      );
    expect(named(known, unvalidated)).toEqual([
      ['validation loss', '2', ''],
      ['training loss', '0.5', '0.25']
    ]);
    expect(named(known, known)).toEqual([['validation loss', '2', '2']]);
    expect(named(known, overview())).toEqual([['validation loss', '2', '']]);
  });

  test('are told by the hyperparameters of the best trial where one is a search', () => {
    const options = { method: 'random', trials: 2 } as unknown as Search;
    const config = { ...experiment().config, search: options };
    const found = overview({
      experiment: experiment({ params: {}, config }),
      trials: [trial({ params: { lr: 0.5 } })]
    });
    const [params] = rowsOf([found, overview({ experiment: experiment({ params: { lr: 0.1 } }) })], 130);
    expect(params?.rows).toEqual([{ name: 'lr', values: ['0.5', '0.1'], differs: true }]);
  });

  test('have a colour of their own, up to twenty', () => {
    expect(new Set(Array.from({ length: 20 }, (_, index) => colourOf(index))).size).toBe(20);
  });

  test('may have a hyperparameter by any name', () => {
    const strange = overview({ experiment: experiment({ params: { constructor: 3 } }) });
    const [params] = rowsOf([strange, overview()], 130);
    expect(params?.rows).toEqual([{ name: 'constructor', values: ['3', ''], differs: true }]);
  });

  test('may not be known yet', () => {
    expect(rowsOf([null, null], 0)).toEqual([]);
  });
});
