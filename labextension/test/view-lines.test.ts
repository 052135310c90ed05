/** Which metrics share a plot, and curves as lines over an axis. */

import type { Curve, Kind } from '../src/api/types';
import { evenly, inWords, markedText, lastText, tableOf } from '../src/view/describe';
import { aligned, allPositive, type Line, lineOf, linesOf, panelsOf } from '../src/view/lines';
import { DEFAULTS } from '../src/view/settings';
import { spanByKey } from '../src/view/zoom';

function curve(kind: Kind, metric: string, mean: (number | null)[], more: Partial<Curve> = {}): Curve {
  const step = mean.map((_, index) => 10 * (index + 1));
  return {
    kind,
    metric,
    size: mean.map(() => 1),
    step,
    epoch: step.map(each => each / 100),
    at: step.map(each => 1000 + each),
    mean,
    low: mean,
    high: mean,
    broken: mean.flatMap((value, index) => (value === null ? [index] : [])),
    last: mean.at(-1) ?? null,
    ...more
  };
}

function line(of: Curve, settings = DEFAULTS): Line {
  return lineOf(of, { label: of.kind, colour: of.kind }, settings, 1000);
}

describe('panels', () => {
  test('the loss comes first, with training before validation; what only training knows comes last', () => {
    const told = [
      curve('training', 'grad_norm', [1]),
      curve('validation', 'accuracy', [1]),
      curve('validation', 'loss', [1]),
      curve('training', 'loss', [1])
    ];
    const panels = panelsOf(told).map(panel => [panel.metric, ...panel.curves.map(each => each.kind)]);
    expect(panels).toEqual([
      ['loss', 'training', 'validation'],
      ['accuracy', 'validation'],
      ['grad_norm', 'training']
    ]);
  });
});

describe('lines', () => {
  test('stand over epochs, steps, or seconds since the beginning', () => {
    const told = curve('training', 'loss', [3, 2]);
    const along = (['epoch', 'step', 'time'] as const).map(axis => line(told, { ...DEFAULTS, axis }).x);
    expect(along).toEqual([
      [0.1, 0.2],
      [10, 20],
      [10, 20]
    ]);
  });

  test('are two where a student begins at its own first epoch, and stay the same while the curve does', () => {
    const told = curve('training', 'loss', [4, 3, 2, 9, 8], { epoch: [0.5, 1, 2, 0.5, 1] });
    const both = linesOf(told, { label: 'training', colour: 'training' }, DEFAULTS, 1000);
    expect(both.map(({ label, dashed, x, mean }) => [label, dashed, x, mean])).toEqual([
      ['training', false, [0.5, 1, 2], [4, 3, 2]],
      ['training 2', true, [0.5, 1], [9, 8]]
    ]);
    expect(both.map(each => lastText(each, 'epoch'))).toEqual(['2', '8']);
    expect(linesOf(told, { label: 'training', colour: 'training' }, DEFAULTS, 1000)[1]).toBe(both[1]);
  });

  test('are one for each training that has told one value at its end, and one where the epoch has no length', () => {
    const parts = (epoch: number[]): number[] =>
      linesOf(curve('validation', 'score', [3, 2, 1], { epoch }), { label: '', colour: '' }, DEFAULTS, 0).map(
        ({ x }) => x.length
      );
    expect([parts([6, 6, 6]), parts([0, 0, 0]), parts([1, 1, 2])]).toEqual([[1, 1, 1], [3], [3]]);
  });

  test('have a band only where points stand for several reports', () => {
    expect(line(curve('training', 'loss', [3, 2])).low).toBeNull();
    expect(line(curve('training', 'loss', [3, 2], { size: [1, 2], low: [3, 1], high: [3, 4] }))).toMatchObject({
      low: [3, 1],
      high: [3, 4]
    });
  });

  test('are smoothed from the beginning, and keep the raw values', () => {
    const settings = { ...DEFAULTS, smoothing: 0.5 };
    const few = line(curve('validation', 'loss', [3, 0]), settings);
    expect(few).toMatchObject({ mean: [3, 1], raw: [3, 0] });
    const more = line(curve('validation', 'loss', [3, 0, 2]), settings);
    expect(more.mean.slice(0, 2)).toEqual(few.mean);
    expect(line(curve('validation', 'loss', [3, 0])).raw).toBeNull();
  });

  test('lose a zigzag where they are smoothed much', () => {
    const settings = { ...DEFAULTS, smoothing: 0.9 };
    const zigzag = Array.from({ length: 100 }, (_, index) => index % 2);
    const many = line(curve('training', 'loss', zigzag), settings);
    expect(many.raw).toEqual(zigzag);
    expect(many.mean.at(-1)).toBeCloseTo(0.5, 1);
  });

  test('are broken where a value is not finite, or so large that no axis can hold it', () => {
    const drawn = line(curve('training', 'loss', [1, null, 1e200, 2]));
    expect(drawn.mean).toEqual([1, null, null, 2]);
    expect(drawn.broken).toEqual([0.2, 0.3]);
  });

  test('have no more points than a screen can show, and keep the newest value', () => {
    const long = line(
      curve(
        'training',
        'loss',
        Array.from({ length: 799 }, (_, index) => index)
      )
    );
    expect(long.x.length).toBeLessThanOrEqual(400);
    expect(long.curve.last).toBe(798);
    expect(long.high?.at(-1)).toBe(798);
  });

  test('only positive ones can stand on a logarithmic axis', () => {
    expect(allPositive([curve('training', 'loss', [1, null, 0.1])])).toBe(true);
    expect(allPositive([curve('training', 'loss', [1]), curve('validation', 'loss', [0])])).toBe(false);
    expect(allPositive([curve('training', 'loss', [1], { low: [-1], size: [2] })])).toBe(false);
  });
});

test('columns share one x: a point that another line has is no gap, a value that is not finite is one', () => {
  const columns = aligned(
    [
      [1, 2, 3],
      [2, 2.5]
    ],
    [[[10, null, 30]], [[20, 25]]]
  );
  expect(columns).toEqual([
    [1, 2, 2.5, 3],
    [10, null, undefined, 30],
    [undefined, 20, 25, undefined]
  ]);
});

describe('a label', () => {
  const zigzag = curve('training', 'loss', [3, 0, null]);

  test('says the smoothed value that the ring marks, and the raw one in brackets', () => {
    const smooth = line(zigzag, { ...DEFAULTS, smoothing: 0.5 });
    expect([0, 1, 2].map(index => markedText(smooth, index))).toEqual(['3 (3)', '1 (0)', 'not finite']);
    expect(tableOf([smooth], 'step').rows.map(row => row[2])).toEqual(['3', '0', 'not finite']);
  });

  test('says the raw value alone where nothing is smoothed', () => {
    expect([0, 1].map(index => markedText(line(zigzag), index))).toEqual(['3', '0']);
  });

  test('says the newest value in the same way', () => {
    const told = curve('training', 'loss', [3, 0]);
    expect(lastText(line(told, { ...DEFAULTS, smoothing: 0.5 }), 'epoch')).toBe('1 (0)');
    expect(lastText(line(told), 'epoch')).toBe('0');
    expect(lastText(line(curve('training', 'loss', [3, null], { last: 'NaN' })), 'epoch')).toBe('nan');
    expect(lastText(line(curve('training', 'loss', [])), 'epoch')).toBe('');
  });
});

describe('the best value', () => {
  const told = curve('validation', 'accuracy', [0.9, 0.9697, 0.9697, 0.9461], { at: [1060, 1125, 1200, 1260] });
  const look = { label: 'validation', colour: 'validation', mode: 'max' } as const;
  const best = (settings = DEFAULTS, of = told): Line => lineOf({ ...of }, look, settings, 1000);

  test('is said beside the newest, with the place on the axis where it was first reached', () => {
    expect(lastText(best(), 'epoch')).toBe('0.9461 (best 0.9697 @ 0.2)');
    expect(lastText(best({ ...DEFAULTS, axis: 'step' }), 'step')).toBe('0.9461 (best 0.9697 @ 20)');
    expect(lastText(best({ ...DEFAULTS, axis: 'time' }), 'time')).toBe('0.9461 (best 0.9697 @ 2:05)');
  });

  test('stands beside the smoothed and the raw newest value, and is itself a raw one', () => {
    const smooth = best({ ...DEFAULTS, smoothing: 0.5 });
    expect(lastText(smooth, 'epoch')).toMatch(/^0\.95\d+ \(0\.9461, best 0\.9697 @ 0\.2\)$/);
    expect(smooth.best).toEqual({ index: 1, value: 0.9697 });
  });

  test('is named only where it is the newest, and where there is one to choose from', () => {
    expect(lastText(best(DEFAULTS, curve('validation', 'accuracy', [0.9, 0.95])), 'epoch')).toBe('0.95 (best)');
    expect(best(DEFAULTS, curve('validation', 'accuracy', [0.9])).best).toBeNull();
  });

  test('of a point that stands for several reports is the best of them', () => {
    const merged = curve('validation', 'accuracy', [0.8, 0.7], { size: [2, 1], low: [0.7, 0.7], high: [0.9, 0.7] });
    expect(best(DEFAULTS, merged).best).toEqual({ index: 0, value: 0.9 });
  });
});

describe('the shown part of the x axis', () => {
  const whole = [0, 8] as const;

  test('is halved and doubled around its middle, and is never more than all', () => {
    expect(spanByKey('+', null, whole)).toEqual([2, 6]);
    expect(spanByKey('-', [3, 5], whole)).toEqual([2, 6]);
    expect(spanByKey('-', [0, 2], whole)).toEqual([0, 4]);
    expect(spanByKey('-', [1, 7], whole)).toBeNull();
  });

  test('is moved along the axis, not beyond its ends', () => {
    expect(spanByKey('ArrowRight', [2, 6], whole)).toEqual([3, 7]);
    expect(spanByKey('ArrowRight', [4, 8], whole)).toEqual([4, 8]);
    expect(spanByKey('ArrowLeft', [0.5, 4.5], whole)).toEqual([0, 4]);
  });

  test('is all again after Escape; other keys are left to the notebook', () => {
    expect(spanByKey('Escape', [2, 6], whole)).toBeNull();
    expect(spanByKey('a', [2, 6], whole)).toBeUndefined();
  });
});

describe('a line', () => {
  const look = { label: '#1', colour: 'one' };

  test('stays the same object as long as its curve and the settings do', () => {
    const told = curve('training', 'loss', [3, 1]);
    const before = lineOf(told, look, DEFAULTS, 1000);
    expect(lineOf(told, { ...look }, { ...DEFAULTS, logAxis: !DEFAULTS.logAxis }, 1000)).toBe(before);
  });

  test('is converted anew after a change of the curve, the look, the settings or time 0', () => {
    const told = curve('training', 'loss', [3, 1]);
    const before = lineOf(told, look, DEFAULTS, 1000);
    const others = [
      lineOf({ ...told }, look, DEFAULTS, 1000),
      lineOf(told, { ...look, colour: 'two' }, DEFAULTS, 1000),
      lineOf(told, look, { ...DEFAULTS, smoothing: 0.5 }, 1000),
      lineOf(told, look, { ...DEFAULTS, axis: 'time' }, 1000),
      lineOf(told, look, { ...DEFAULTS, axis: 'time' }, 900)
    ];
    expect(others).not.toContain(before);
    expect(others.slice(3).map(each => each.x)).toEqual([
      [10, 20],
      [110, 120]
    ]);
  });
});

describe('in words', () => {
  test('a plot says where each line begins and ends, its extremes, and what is not finite', () => {
    const words = inWords('loss', [line(curve('training', 'loss', [3, null, 1, 2]))], 'epoch');
    expect(words).toBe('loss by epoch. training: 3 at epoch 0.1, 2 at epoch 0.4, lowest 1, highest 3, 1 not finite.');
  });

  test('the same line is described by another axis', () => {
    const told = line(curve('training', 'loss', [3, 1]));
    expect(inWords('loss', [told], 'step')).toContain('3 at step 0.1');
    expect(inWords('loss', [told], 'epoch')).toContain('3 at epoch 0.1');
  });

  test('a line without any finite value says so', () => {
    const words = inWords('loss', [line(curve('training', 'loss', [null], { last: 'NaN' }))], 'step');
    expect(words).toBe('loss by step. training: no values yet, 1 not finite.');
  });

  test('the table has a row a step, and each line its own column', () => {
    const training = line(curve('training', 'loss', [3, null, 1]));
    const validation = line(curve('validation', 'loss', [2], { step: [30], epoch: [0.3] }));
    expect(tableOf([training, validation], 'step')).toEqual({
      head: ['step', 'epoch', 'training', 'validation'],
      rows: [
        ['10', '0.1', '3', ''],
        ['20', '0.2', 'not finite', ''],
        ['30', '0.3', '1', '2']
      ],
      left: 0
    });
  });

  test('the table of values over rows has no epochs', () => {
    const { head, rows } = tableOf([line(curve('validation', 'loss', [2], { step: [30], epoch: [0.3] }))], 'row');
    expect([head, rows]).toEqual([['row', 'validation'], [['30', '2']]]);
  });

  test('a long table keeps 200 rows, the first and the last among them', () => {
    const { rows, left } = tableOf([line(curve('training', 'loss', Array<number>(399).fill(1)))], 'step');
    expect([rows.length, left, rows[0]?.[0], rows.at(-1)?.[0]]).toEqual([200, 199, '10', '3990']);
  });

  test('a long table keeps each validation', () => {
    const training = line(curve('training', 'loss', Array<number>(399).fill(1)));
    const validation = line(curve('validation', 'loss', [2, 1], { step: [1230, 2470], epoch: [12.3, 24.7] }));
    const { rows } = tableOf([training, validation], 'step');
    expect(rows.filter(row => row[3]).map(row => row[0])).toEqual(['1230', '2470']);
    expect([rows.length, rows[0]?.[0], rows.at(-1)?.[0]]).toEqual([200, '10', '3990']);
  });

  test('evenly takes each thing at most once', () => {
    const all = Array.from({ length: 7 }, (_, index) => index);
    expect(evenly(all, 4)).toEqual([0, 2, 4, 6]);
    expect(evenly(all, 9)).toEqual(all);
  });
});
