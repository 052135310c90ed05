/** Where the time of a training goes: the bars that a view draws, and their text. */

import type { RankTimes, Split, Times } from '../src/api/types';
import { barsOf, partTexts, sharesOf } from '../src/model/times';

function split(parts: Record<string, number>, steps = 10): Split {
  return { steps, parts };
}

function rank(number: number, whole: Split, minute: Split = whole): RankTimes {
  const rest = {
    node: 'n',
    now: null,
    loader: 'none',
    workers: 0,
    operations: 0,
    written_bytes: 0,
    written_s: 0
  } as const;
  return { rank: number, whole, minute, ...rest };
}

function times(fields: Partial<Times> = {}): Times {
  const whole = split({ data: 1, forward: 3 });
  return { trial: 1, live: true, whole, minute: split({ data: 1 }), ranks: [rank(0, whole)], sentence: '', ...fields };
}

test('shares are fractions of the time, in the order of the parts of a step', () => {
  expect([...sharesOf(split({ forward: 3, data: 1 }))]).toEqual([
    ['data', 0.25],
    ['forward', 0.75]
  ]);
  expect(sharesOf(split({})).size).toBe(0);
});

test('a running training shows its last minute first, one that has ended its whole run', () => {
  expect(barsOf(times()).map(bar => bar.name)).toEqual(['last minute', 'whole run']);
  expect(barsOf(times({ live: false })).map(bar => bar.name)).toEqual(['whole run']);
});

test('several ranks have bars of their own, in the last minute while they train', () => {
  const ranks = [rank(0, split({ data: 1 }), split({ forward: 1 })), rank(1, split({ data: 1 }))];
  const running = barsOf(times({ ranks }));
  expect(running.map(bar => bar.name)).toEqual(['last minute', 'whole run', 'rank 0', 'rank 1']);
  expect([...(running[2]?.shares ?? [])]).toEqual([['forward', 1]]);
  expect([...(barsOf(times({ ranks, live: false }))[1]?.shares ?? [])]).toEqual([['data', 1]]);
});

test('nothing measured draws nothing', () => {
  expect(barsOf(times({ whole: split({}), minute: split({}), ranks: [] }))).toEqual([]);
});

test('parts below half a percent have no text', () => {
  const [bar] = barsOf(times({ live: false, whole: split({ data: 62, forward: 37.6, stall: 0.4 }) }));
  expect(bar && [...partTexts(bar).values()]).toEqual(['waiting for data 62 %', 'forward 38 %']);
});
