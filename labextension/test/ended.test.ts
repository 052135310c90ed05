/** Of which ended experiments a user is notified, once, and of which not. */

import type { EndedExperiment, EndedExperiments } from '../src/api/types';
import { askSince, news, noticesOf, rememberedIn } from '../src/panel/ended';
import type { Remembered } from '../src/panel/ended';
import { DEFAULTS, settingsIn } from '../src/panel/settings';

const NONE: ReadonlySet<number> = new Set();

function ended(number: number, at: number, state = 'completed'): EndedExperiment {
  return { number, name: '', state, ended_at: at, text: `#${number} ${state}` };
}

function answer(at: number, ...found: EndedExperiment[]): EndedExperiments {
  return { ended: found, active: false, at };
}

function numbers(found: readonly EndedExperiment[]): number[] {
  return found.map(each => each.number);
}

test('a browser that remembers nothing gets no notices of the past, and of all that follows', () => {
  const first = news(null, answer(1000, ended(1, 990)), NONE);
  expect(numbers(first.fresh)).toEqual([]);
  const next = news(first.remembered, answer(1100, ended(1, 990), ended(2, 1050)), NONE);
  expect(numbers(next.fresh)).toEqual([2]);
});

test('each ending is news once, also one that is stored late, and one that ends again', () => {
  let remembered: Remembered = { since: 1000, known: [] };
  const looks = [
    answer(1100, ended(2, 1050)),
    answer(1110, ended(1, 1045), ended(2, 1050)), // the first one was stored later
    answer(1120, ended(1, 1045), ended(2, 1050)),
    answer(2000, ended(2, 1900)) // it was trained longer
  ];
  const said = looks.map(each => {
    const found = news(remembered, each, NONE);
    ({ remembered } = found);
    return numbers(found.fresh);
  });
  expect(said).toEqual([[2], [1], [], [2]]);
  expect(askSince(remembered)).toBe(1840);
});

test('what is looked at is known without a notice', () => {
  const first = news({ since: 1000, known: [] }, answer(1100, ended(1, 1050), ended(2, 1060)), new Set([2]));
  expect(numbers(first.fresh)).toEqual([1]);
  expect(news(first.remembered, answer(1110, ended(2, 1060)), NONE).fresh).toEqual([]);
});

test('many endings are one notice', () => {
  const three = [ended(1, 1), ended(2, 2, 'failed'), ended(3, 3, 'stopped')];
  expect(noticesOf(three)).toEqual([
    { kind: 'success', text: '#1 completed', number: 1 },
    { kind: 'error', text: '#2 failed', number: 2 },
    { kind: 'info', text: '#3 stopped', number: 3 }
  ]);
  expect(noticesOf([...three, ended(4, 4)])).toEqual([
    { kind: 'info', text: '4 experiments have ended, 1 of them failed: #1, #2, #3, #4', number: null }
  ]);
});

test('what a browser has stored may be damaged', () => {
  expect(rememberedIn(JSON.stringify({ since: 5, known: ['1@4'] }))).toEqual({ since: 5, known: ['1@4'] });
  for (const text of [null, '', 'null', '{}', '{"since": "5", "known": []}', '[']) {
    expect(rememberedIn(text)).toBeNull();
  }
  expect(askSince(null)).toBeNull();
});

test('a setting switches notices off', () => {
  expect(DEFAULTS.notices).toBe(true);
  expect(settingsIn({ notices: false }).notices).toBe(false);
  expect(settingsIn({ notices: 'no' }).notices).toBe(true);
});
