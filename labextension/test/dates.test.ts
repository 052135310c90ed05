import { originText, spanText, startedAt, whenText } from '../src/model/dates';
import { attempt, overview } from './fakes';

const at = (day: number, hour: number, minute: number, month = 10, year = 2026): number =>
  new Date(year, month, day, hour, minute).getTime() / 1000;
const NOW = at(29, 23, 0);

test('a time is told by the day, and of another year without the hour', () => {
  expect(whenText(at(29, 21, 14), NOW)).toBe('today 21:14');
  expect(whenText(at(28, 1, 5), NOW)).toBe('yesterday 01:05');
  expect(whenText(at(3, 21, 14), NOW)).toBe('3 Nov 21:14');
  expect(whenText(at(28, 21, 14, 10, 2025), NOW)).toBe('28 Nov 2025');
  expect(whenText(at(31, 21, 14, 11, 2025), at(1, 9, 0, 0))).toBe('yesterday 21:14');
});

test('an experiment says where it comes from', () => {
  const experiment = { ...overview().experiment, created_at: at(29, 21, 14) };
  expect(originText({ ...experiment, notebook: '/home/dave/quickstart.ipynb' }, NOW)).toBe(
    'today 21:14 · quickstart.ipynb'
  );
  expect(originText({ ...experiment, notebook: null }, NOW)).toBe('today 21:14');
});

test('a span begins with the first slots and not with the submission', () => {
  const experiment = { ...overview().experiment, created_at: at(29, 21, 0), ended_at: null };
  const waits = { ...overview(), experiment, attempts: [] };
  expect(startedAt(waits)).toBe(null);
  expect(spanText(waits, NOW)).toBe('submitted today 21:00');
  const attempts = [attempt(1, { granted_at: at(29, 21, 14) }), attempt(2, { granted_at: at(29, 21, 16) })];
  const runs = { ...waits, attempts };
  expect(spanText(runs, NOW)).toBe('started today 21:14');
  const ended = (when: number): string => spanText({ ...runs, experiment: { ...experiment, ended_at: when } }, when);
  expect(ended(at(29, 21, 18))).toBe('started today 21:14, ended 21:18');
  expect(ended(at(30, 2, 0))).toBe('started yesterday 21:14, ended today 02:00');
  const late = { ...runs, attempts: attempts.slice(1) }; // the first of many attempts are left out
  expect(startedAt(late)).toBe(experiment.created_at);
});
