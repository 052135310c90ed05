/** What a view makes of changes that are typed for a rerun, and of the differences between two experiments. */

import type { Diff, Difference } from '../src/api/types';
import { assignmentsIn, assignmentsText, changesIn } from '../src/model/assignments';
import { differencesOf } from '../src/model/difference';

test('changes are written as in a cell', () => {
  expect(assignmentsIn(' lr=1e-2 width = 64 act=relu name="a b" wide=True none=None ')).toEqual({
    lr: 0.01,
    width: 64,
    act: 'relu',
    name: 'a b',
    wide: true,
    none: null
  });
  expect(assignmentsIn("text='64' version=1.2.3")).toEqual({ text: '64', version: '1.2.3' });
  expect(assignmentsIn('  ')).toEqual({});
});

test('anything else is not guessed at', () => {
  for (const text of ['lr', 'lr=', '--epochs 3', 'lr=0.1 and more', "name='a", '=3']) {
    expect(() => assignmentsIn(text)).toThrow('write changes as lr=0.01 width=64');
  }
});

test('the values of a run are written as they are read, and only those that were changed are sent', () => {
  const params = { lr: 1e-5, wide: true, none: null, act: 'relu', text: '64', said: "it's", path: 'a b', blocks: [1] };
  const text = `lr=0.00001 wide=True none=None act=relu text='64' said="it's" path='a b'`;
  expect(assignmentsText(params)).toBe(text);
  expect(assignmentsText({ both: `'"`, empty: '', tiny: 1e-7 })).toBe("empty='' tiny=1e-7");
  expect(changesIn(text, params)).toEqual({});
  expect(changesIn(text.replace('relu', 'gelu').replace('0.00001', '0.1'), params)).toEqual({ lr: 0.1, act: 'gelu' });
});

describe('differences', () => {
  const results = { identical: false, text: 'they part at step 3', equal_to: 2, parted_at: 3, metrics: {} };
  const diff = (fields: Partial<Diff>): Diff => ({ a: 12, b: 15, differences: [], unknown: [], results, ...fields });

  test('have their causes first, then what is not known, then the results', () => {
    const cause: Difference = {
      kind: 'code',
      name: 'model',
      text: 'model differs',
      detail: ['-a', '+b'],
      harmless: false
    };
    const threads: Difference = { kind: 'hardware', name: 'threads', text: '4, 8', detail: [], harmless: true };
    const metrics = { error: [0.25, null] as [number, null] };
    const found = differencesOf(
      diff({ differences: [cause, threads], unknown: ['data'], results: { ...results, metrics } })
    );
    expect(found).toEqual([
      { kind: 'code', text: 'model differs', detail: '-a\n+b', dim: false },
      { kind: 'hardware', text: '4, 8 (changes no bit)', detail: '', dim: true },
      { kind: 'not known', text: 'data', detail: '', dim: false },
      { kind: 'results', text: 'they part at step 3; error 0.25 and none', detail: '', dim: false }
    ]);
  });

  test('that are none are said to be none, and long ones are cut', () => {
    expect(differencesOf(diff({}))[0]?.text).toMatch(/^none: code, data/);
    const lines = Array.from({ length: 62 }, (_, index) => `+${index}`);
    const long: Difference = { kind: 'code', name: 'model', text: 'model', detail: lines, harmless: false };
    expect(differencesOf(diff({ differences: [long] }))[0]?.detail).toMatch(/\+59\n\.\.\. 2 lines more$/);
  });
});
