/** What only the front end says; the golden cases have what Python says, too. */

import { newestText, number, paramsText, progressText, titleText } from '../src/model/text';
import { experiment, overview, trial } from './fakes';

test('progress in words: the epoch, the step, and what is left', () => {
  const { config } = experiment();
  const at = trial({ epoch: 2.4, step: 141, total_steps: 470 });
  expect(progressText(at, config, { perSecond: 2, left: 125 })).toBe(
    'epoch 3/10  step 141 of 470  about 2 min 05 s left'
  );
  expect(progressText(at, config, null)).toBe('epoch 3/10  step 141 of 470');
  expect(progressText(trial({ total_steps: null }), config, null)).toBe('epoch 0/10  step 0');
});

test('what uses a model counts rows, and trains nothing', () => {
  const config = { ...experiment().config, form: 'evaluation' as const };
  const at = trial({ epoch: 0.3, step: 141, total_steps: 470, training: { loss: 0.5 } });
  expect(progressText(at, config, { perSecond: 1234.5, left: 3 })).toBe(
    'row 141 of 470  1230 rows/s  about 3.0 s left'
  );
  expect(progressText(at, config, { perSecond: 0.25, left: 90 })).toContain('  0.25 rows/s  about 1 min 30 s left');
  expect(newestText(at, config)).toBe('loss 0.5');
});

test('a title has the name where there is one', () => {
  expect(titleText(overview())).toBe('#12 digits');
  expect(titleText(overview({ experiment: experiment({ name: '' }) }))).toBe('#12');
});

test('numbers that were computed here are said like those that came as text', () => {
  expect([NaN, Infinity, -Infinity].map(number)).toEqual(['nan', 'inf', '-inf']);
});

test('a hyperparameter that is infinite is said as a number, and a dictionary as one', () => {
  expect(paramsText({ z: { float: 'inf' }, n: [{ float: 'nan' }], d: { float: 'adam' } })).toBe(
    "z=inf n=[nan] d={'float': 'adam'}"
  );
});
