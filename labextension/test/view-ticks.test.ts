/** Ranges and ticks of axes. */

import { logRange, logTicks, logTickText, plainRange, secondsText, tickText, within } from '../src/view/ticks';

describe('ranges', () => {
  test('leave a little room, but none below zero for what is never negative', () => {
    expect(plainRange(1, 2)).toEqual([0.94, 2.06]);
    expect(plainRange(0.01, 2)[0]).toBe(0);
    expect(plainRange(-1, 1)[0]).toBeLessThan(-1);
  });

  test('hold a value that stands alone', () => {
    expect(plainRange(5, 5)).toEqual([4.5, 5.5]);
    expect(plainRange(0, 0)).toEqual([0, 1]);
    const [low, high] = logRange(2, 2).map(Number) as [number, number];
    expect(low > 0 && low < 2 && high > 2).toBe(true);
  });

  test('have the ends that the user set, where the axis can show them', () => {
    expect(within([1, 2], [null, null], false)).toEqual([1, 2]);
    expect(within([1, 2], [0, null], false)).toEqual([0, 2]);
    expect(within([1, 2], [null, 1.5], false)).toEqual([1, 1.5]);
    expect(within([1, 2], [3, null], false)).toEqual([1, 2]);
    expect(within([1, 2], [0, 5], true)).toEqual([1, 2]);
    expect(within([null, null], [0, 5], true)).toEqual([null, null]);
  });

  test('are none where there are no values: no number is made up', () => {
    expect(plainRange(null, null)).toEqual([null, null]);
    expect(logRange(null, null)).toEqual([null, null]);
  });
});

describe('ticks of a logarithmic axis', () => {
  test('are decades where there are many of them', () => {
    expect(logTicks(0.0005, 20)).toEqual([0.001, 0.01, 0.1, 1, 10]);
  });

  test('are finer where the range is small, and plain where it is tiny', () => {
    expect(logTicks(0.05, 2.5)).toEqual([0.1, 0.3, 1]);
    expect(logTicks(0.8, 2.4)).toEqual([1, 1.5, 2]);
    expect(logTicks(1.01, 1.09)).toEqual([1.02, 1.04, 1.06, 1.08]);
  });

  test('are never too many', () => {
    expect(logTicks(1e-30, 1e30).length).toBeLessThanOrEqual(7);
  });
});

test('a tick has as many decimals as its neighbours need', () => {
  expect([0, 0.5, 1].map(value => tickText(value, 0.5))).toEqual(['0.0', '0.5', '1.0']);
  expect([0, 0.25, 0.5].map(value => tickText(value, 0.25))).toEqual(['0.00', '0.25', '0.50']);
  expect(tickText(0.905, 0.005)).toBe('0.905');
  expect(tickText(2000, 500)).toBe('2000');
  expect(tickText(250000, 50000)).toBe('2.5e5');
  expect(tickText(0.00002, 0.00001)).toBe('2e-5');
  expect(tickText(0, 0.00001)).toBe('0');
});

test('a tick of a logarithmic axis stands for itself', () => {
  expect([0.0003, 0.03, 1.5, 1000, 1e6].map(logTickText)).toEqual(['3e-4', '0.03', '1.5', '1000', '1e6']);
});

test('seconds are told as a clock would', () => {
  const told = [secondsText(45, 15), secondsText(90, 30), secondsText(3600, 1800), secondsText(172800, 86400)];
  expect(told).toEqual(['45 s', '1:30', '1:00 h', '2 d']);
  expect(secondsText(59.7, 1)).toBe('1:00');
});
