/** Curves grow report by report, stay thin, and never forget a spike. */

import type { Curve, Num } from '../src/api/types';
import { LiveCurves, num, POINTS, smoothed, thinned } from '../src/model/curves';
import { curves, report } from './fakes';

function grown(values: Num[], start = new LiveCurves()): LiveCurves {
  values.forEach((loss, place) => start.add(report(place + 1, start.seq + 1, { metrics: { loss } })));
  return start;
}

function first(live: LiveCurves): Curve {
  const [curve] = live.curves;
  if (!curve) {
    throw new Error('there is no curve');
  }
  return curve;
}

function total(curve: Curve): number {
  return curve.size.reduce((one, other) => one + other, 0);
}

function waves(count: number): number[] {
  return Array.from({ length: count }, (_, place) => Math.sin(place / 50));
}

test('numbers that JSON has no word for are text', () => {
  expect(['NaN', 'Infinity', '-Infinity', 1.5].map(each => num(each as Num))).toEqual([NaN, Infinity, -Infinity, 1.5]);
});

describe('growing', () => {
  test('a report is a point of one report, and a value that is not finite has no mean', () => {
    const curve = first(grown([0.5, 'NaN', 0.25]));
    expect(curve).toMatchObject({ size: [1, 1, 1], mean: [0.5, null, 0.25], broken: [1], last: 0.25 });
    expect(first(grown([0.5, 'Infinity'])).last).toBe('Infinity');
  });

  test('what is included already, or of another trial, adds nothing', () => {
    const live = new LiveCurves(1, curves(report(1), report(8)));
    expect([live.add(report(8)), live.add(report(9, 9, { trial: 2 })), live.seq]).toEqual([false, false, 8]);
    expect([live.add(report(9)), live.seq, first(live).step]).toEqual([true, 9, [1, 8, 9]]);
  });

  test('a report that was completed by another metric is one point of those that it had', () => {
    const live = grown([1, 2]);
    live.add(report(2, 9, { metrics: { loss: 2, accuracy: 0.5 } }));
    expect(live.curves.map(each => [each.metric, each.step, each.last])).toEqual([
      ['loss', [1, 2], 2],
      ['accuracy', [2], 0.5]
    ]);
  });

  test('a copy that was handed out never changes, and is the same while its curve is', () => {
    const live = grown([1, 2]);
    const before = first(live);
    live.add(report(3, 3, { kind: 'validation' }));
    expect(live.curves[0]).toBe(before);
    live.add(report(4, 4));
    expect(live.curves[0]).not.toBe(before);
    expect([before.step, before.mean]).toEqual([
      [1, 2],
      [1, 2]
    ]);
  });

  test('what it was begun with is left as it was', () => {
    const start = curves(report(1));
    grown([3, 4], new LiveCurves(1, start));
    expect(start).toEqual(curves(report(1)));
  });

  test('an older step goes to its place and shifts what is broken', () => {
    const live = new LiveCurves();
    live.add(report(10, 1));
    live.add(report(20, 2, { metrics: { loss: 'NaN' } }));
    live.add(report(15, 3, { metrics: { loss: 7 } }));
    expect(first(live)).toMatchObject({ step: [10, 15, 20], mean: [0.1, 7, null], broken: [2], last: 'NaN' });
  });
});

describe('thinning', () => {
  test('twice the limit is kept as it is, and one more makes it half as many', () => {
    const live = grown(waves(2 * POINTS));
    expect(first(live).size.length).toBe(2 * POINTS);
    live.add(report(9999, 9999));
    expect(first(live).size.length).toBe(POINTS);
    expect(total(first(live))).toBe(2 * POINTS + 1);
  });

  test('neighbours become one: means by weight, the lowest and the highest, the place of the last', () => {
    const curve = first(grown([1, 5, 2, 'NaN', 'NaN', 'Infinity', -3, 4]));
    const thin = thinned({ ...curve, size: [2, 1, 1, 2, 1, 2, 2, 1] }, 4);
    expect(thin.size).toEqual([3, 3, 3, 3]);
    expect(thin.step).toEqual([2, 4, 6, 8]);
    expect(thin.at).toEqual([102, 104, 106, 108]);
    expect(thin.mean).toEqual([(2 * 1 + 5) / 3, 2, null, (-3 * 2 + 4) / 3]);
    expect([thin.low, thin.high]).toEqual([
      [1, 2, null, -3],
      [5, 2, null, 4]
    ]);
    expect([thin.broken, thin.last]).toEqual([[1, 2], 4]);
  });

  test('a curve that is thin already is itself', () => {
    const curve = first(grown([1, 2, 3]));
    expect(thinned(curve, 3)).toBe(curve);
  });

  test.each([1, 2, 7, 199, 200])('there are never more than %p', limit => {
    const curve = first(grown(waves(3333)));
    const thin = thinned(curve, limit);
    expect(thin.size.length).toBeLessThanOrEqual(limit);
    expect([total(thin), thin.step.at(-1)]).toEqual([3333, 3333]);
  });

  test('100,000 reports: the old is as fine as the new, and no spike is lost', () => {
    const values = waves(100_000);
    values[5_000] = 99;
    values[99_990] = -99;
    const curve = first(grown(values));
    expect(curve.step.length).toBeGreaterThanOrEqual(POINTS);
    expect(curve.step.length).toBeLessThanOrEqual(2 * POINTS);
    expect(curve.step.filter(step => step <= 50_000).length).toBeGreaterThan(POINTS / 4);
    expect([Math.max(...(curve.high as number[])), Math.min(...(curve.low as number[]))]).toEqual([99, -99]);
    expect([total(curve), curve.step]).toEqual([100_000, [...curve.step].sort((one, other) => one - other)]);
  });

  test('a long history from the service stays fine while it grows', () => {
    const start = first(grown(waves(POINTS)));
    const coarse = { ...start, size: start.size.map(() => 250), step: start.step.map(step => 250 * step) };
    const live = new LiveCurves(1, { trial: 1, curves: [coarse], seq: 0 });
    for (let step = 100_001; step <= 110_000; step++) {
      live.add(report(step, step));
    }
    expect(first(live).step.filter(step => step <= 100_000).length).toBeGreaterThan(POINTS / 2);
  });

  test('the mean never leaves the band', () => {
    const curve = thinned(first(grown(Array<number>(700).fill(0.1))), 3);
    expect([curve.mean, curve.low, curve.high]).toEqual([Array(3).fill(0.1), Array(3).fill(0.1), Array(3).fill(0.1)]);
  });
});

describe('smoothing', () => {
  test('weight 0 changes nothing', () => {
    expect(smoothed([3, null, 1], 0)).toEqual([3, null, 1]);
  });

  test('the first value is itself, and what follows leans on what was before', () => {
    // As TensorBoard computes them: 3; (3 * .5 * .5 + 1 * .5) / (1 - .25); ...
    const [one, none, two, three] = smoothed([3, null, 1, 1], 0.5);
    expect([one, none]).toEqual([3, null]);
    expect(two).toBeCloseTo((0.75 + 0.5) / 0.75, 12);
    expect(three).toBeCloseTo((0.625 + 0.5) / 0.875, 12);
  });

  test('what is constant stays constant', () => {
    smoothed(Array<number>(50).fill(2), 0.99).forEach(value => expect(value).toBeCloseTo(2, 9));
  });
});
