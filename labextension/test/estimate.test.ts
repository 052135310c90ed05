/** How long a trial still takes, from how fast its steps went lately. */

import type { Curve, Overview, StoredReport, Trial } from '../src/api/types';
import { LiveCurves } from '../src/model/curves';
import { throughputOf } from '../src/model/estimate';
import { attempt, overview, report, trial } from './fakes';

/** Reports of steps `from` to `until`, one each `perStep` seconds, the first at `at`. */
function steps(from: number, until: number, at: number, perStep = 1): StoredReport[] {
  const count = until - from + 1;
  return Array.from({ length: count }, (_, place) => report(from + place, 0, { at: at + place * perStep }));
}

function drawn(reports: StoredReport[]): readonly Curve[] {
  const live = new LiveCurves();
  reports.forEach((each, place) => live.add({ ...each, seq: place + 1 }));
  return live.curves;
}

function running(fields: Partial<Trial> = {}, attempts = [attempt()]): Overview {
  return overview({ trials: [trial({ total_steps: 1000, ...fields })], attempts });
}

const secondsLeft = (...args: Parameters<typeof throughputOf>): number | null => throughputOf(...args)?.left ?? null;

test('steps that are left, at the pace of late', () => {
  expect(secondsLeft(running(), drawn(steps(1, 100, 110)), 209)).toBeCloseTo(900);
  expect(secondsLeft(running(), drawn(steps(1, 100, 110, 0.1)), 119.9)).toBeCloseTo(90);
});

test('it is the pace of late that counts, not that of the beginning', () => {
  const day = 1_800_000_000;
  const reports = [...steps(1, 100, day, 10), ...steps(101, 600, day + 991, 1)];
  expect(secondsLeft(running(), drawn(reports), day + 1490)).toBeCloseTo(400);
});

test('thinned curves tell the same', () => {
  const long = running({ total_steps: 20_000 });
  expect(secondsLeft(long, drawn(steps(1, 10_000, 110)), 10_109)).toBeCloseTo(10_000);
});

test('between two reports time goes down', () => {
  const curves = drawn(steps(1, 100, 110, 10));
  expect(secondsLeft(running(), curves, 1100)).toBeCloseTo(9000);
  expect(secondsLeft(running(), curves, 1108)).toBeCloseTo(8992);
});

test('a training that hangs is not about to be done', () => {
  const curves = drawn(steps(1, 990, 110));
  expect(secondsLeft(running(), curves, 1099)).toBeCloseTo(10);
  expect(secondsLeft(running(), curves, 1099 + 600)).toBeGreaterThan(600);
});

test('a silence as long as the last validation is no surprise', () => {
  const curves = drawn([...steps(1, 50, 110), ...steps(51, 100, 180)]); // 20 s between them
  const [at, later] = [secondsLeft(running(), curves, 229), secondsLeft(running(), curves, 249)];
  expect((at ?? 0) - (later ?? 0)).toBeCloseTo(20);
});

test('a clock that is behind the service makes nothing longer', () => {
  expect(secondsLeft(running(), drawn(steps(1, 100, 110)), 50)).toBeCloseTo(900);
});

test('nobody knows before two reports', () => {
  expect(secondsLeft(running(), [], 200)).toBeNull();
  expect(secondsLeft(running(), drawn(steps(1, 1, 110)), 200)).toBeNull();
  expect(secondsLeft(running(), drawn(steps(1, 2, 110, 0)), 200)).toBeNull(); // a clock that did not move between them
  expect(secondsLeft(running({}, []), drawn(steps(1, 9, 110)), 200)).toBeNull();
  expect(secondsLeft(overview({ trials: [] }), [], 200)).toBeNull();
});

test('nobody knows without the number of steps', () => {
  expect(secondsLeft(running({ total_steps: null }), drawn(steps(1, 9, 110)), 120)).toBeNull();
});

test.each([
  'queued',
  'starting',
  'releasing',
  'paused',
  'stopping',
  'completed',
  'stopped',
  'pruned',
  'failed'
] as const)('a trial that is %s has no time left to tell', state => {
  expect(secondsLeft(running({ state }), drawn(steps(1, 100, 110)), 209)).toBeNull();
});

test('validations alone tell the pace of a trial that reports nothing else', () => {
  const reports = [report(100, 1, { at: 200 }), report(200, 2, { at: 300 })];
  const curves = drawn(reports.map(each => ({ ...each, kind: 'validation' as const })));
  expect(secondsLeft(running(), curves, 300)).toBeCloseTo(800);
});

describe('after a restart', () => {
  // 300 steps at 1 s each; the second attempt goes on from step 200 and is silent until it has come to 300 again.
  const before = steps(1, 300, 110);
  const again = running({ step: 300, attempt: 2 }, [attempt(), attempt(2, { created_at: 500, resume_from: '200-1' })]);

  test('it goes on from its checkpoint, as fast as before', () => {
    expect(secondsLeft(again, drawn(before), 500)).toBeCloseTo(800);
    expect(secondsLeft(again, drawn(before), 560)).toBeCloseTo(740);
  });

  test('while it catches up it has at least what was never trained before it', () => {
    expect(secondsLeft(again, drawn(before), 900)).toBeCloseTo(700);
  });

  test('its own pace counts as soon as it is known', () => {
    const curves = drawn([...before, ...steps(301, 310, 700, 2)]);
    expect(secondsLeft(again, curves, 718)).toBeCloseTo(690 * 2);
  });

  test('the time between the attempts slows nobody down', () => {
    const curves = drawn([...before, ...steps(301, 301, 9000)]);
    expect(secondsLeft({ ...again, trials: [trial({ step: 301, total_steps: 1000 })] }, curves, 9000)).toBeCloseTo(699);
  });

  test('of an attempt that said nothing the one before it is asked', () => {
    const third = attempt(3, { created_at: 800, resume_from: '200-1' });
    const thrice = running({ step: 300 }, [...again.attempts, third]);
    expect(secondsLeft(thrice, drawn(before), 800)).toBeCloseTo(800);
  });

  test('one that starts from nothing has all steps before it', () => {
    const fresh = running({ step: 300 }, [attempt(), attempt(2, { created_at: 500 })]);
    expect(secondsLeft(fresh, drawn(before), 500)).toBeCloseTo(1000);
  });

  test('nobody knows where no attempt has said enough', () => {
    expect(secondsLeft(again, drawn(steps(1, 1, 110)), 500)).toBeNull();
  });
});
