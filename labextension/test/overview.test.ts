/** What the golden cases cannot say of an overview: which objects stay, and how many attempts are kept. */

import { after, overviewIn, sameExperiment } from '../src/model/overview';
import { attempt, experiment, overview, reported, said, trial } from './fakes';

test('what a message does not touch stays the same object', () => {
  const before = overview({ trials: [trial(), trial({ index: 2 })], attempts: [attempt()], warnings: ['careful'] });
  const moved = after(before, reported(6));
  expect(moved.trials[1]).toBe(before.trials[1]);
  expect(moved.trials[0]).not.toBe(before.trials[0]);
  expect(moved.experiment).toBe(before.experiment);
  expect(moved.attempts).toBe(before.attempts);
  expect(moved.warnings).toBe(before.warnings);
  expect(after(moved, reported(6))).toBe(moved);
});

test('the picture before is left as it was', () => {
  const before = overview({ trials: [trial({ index: 2 })], attempts: [attempt(2)] });
  const copy = structuredClone(before);
  after(before, said(6, { type: 'trial', data: trial() }));
  after(before, said(6, { type: 'attempt', data: attempt() }));
  after(before, said(6, { type: 'note', data: { text: 'disk full', level: 'warning', attempt: 1 } }));
  expect(before).toEqual(copy);
});

test('a note that only informs is told from a warning', () => {
  const told = after(overview(), said(6, { type: 'note', data: { text: 'tuned', level: 'info', attempt: 1 } }));
  const both = after(told, said(7, { type: 'note', data: { text: 'disk full', level: 'warning', attempt: 1 } }));
  expect([both.warnings, both.informational]).toEqual([['tuned', 'disk full'], ['tuned']]);
});

test('the newest ten attempts of each trial are kept, as the service gives them', () => {
  const other = attempt(1, { trial: 2 });
  const ten = Array.from({ length: 10 }, (_, place) => attempt(place + 1));
  const next = after(overview({ attempts: [...ten, other] }), said(6, { type: 'attempt', data: attempt(11) }));
  expect(next.attempts.map(each => [each.trial, each.number])).toEqual([
    ...Array.from({ length: 10 }, (_, place) => [1, place + 2]),
    [2, 1]
  ]);
});

test('an answer that is no overview is none', () => {
  expect([null, 'text', [], {}, { experiment: {} }].map(overviewIn)).toEqual([null, null, null, null, null]);
  expect(overviewIn({ ...overview(), state: 'running', id: 12 })).toEqual(overview());
});

test('an experiment is the same by its number, time and snapshot', () => {
  const one = overview();
  expect(sameExperiment(one, overview({ experiment: experiment({ state: 'failed', name: 'renamed' }) }))).toBe(true);
  for (const other of [{ number: 13 }, { created_at: 101 }, { snapshot: 'f' }]) {
    expect(sameExperiment(one, overview({ experiment: experiment(other) }))).toBe(false);
  }
});
