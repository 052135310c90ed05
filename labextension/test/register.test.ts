import type { CheckpointInfo, Model, ModelVersion } from '../src/api/types';
import { bestCheckpoint } from '../src/model/nextsteps';
import { aliasesOf, changeText, mayChange, modelTitle } from '../src/model/register';

const MODEL = {
  owner: 'vision',
  name: 'memes',
  aliases: { candidate: 2, production: 1 },
  protected: ['production']
} as unknown as Model;
const ADA = { name: 'ada', groups: ['vision'], admin: false, submits: true } as Parameters<typeof mayChange>[1];

test('a model is named as its user addresses it', () => {
  expect(modelTitle(MODEL, 'ada')).toBe('vision/memes');
  expect(modelTitle({ ...MODEL, owner: 'ada' }, 'ada')).toBe('memes');
});

test('a version has its own aliases, and says which are protected', () => {
  expect(aliasesOf(MODEL, { version: 1 } as ModelVersion)).toEqual(['production (protected)']);
  expect(aliasesOf(MODEL, { version: 2 } as ModelVersion)).toEqual(['candidate']);
  expect(aliasesOf(MODEL)).toEqual([]);
});

test('changes are told as on the command line', () => {
  const change = { number: 1, at: 0, who: 'ada', note: '', alias: 'production', before: null, version: null };
  expect(changeText({ ...change, act: 'set', version: 2 })).toBe('production unset -> 2');
  expect(changeText({ ...change, act: 'unset', before: 2 })).toBe('production 2 -> unset');
  expect(changeText({ ...change, act: 'register', alias: '', version: 3 })).toBe('version 3 registered');
  expect(changeText({ ...change, act: 'remove', alias: '', version: 3 })).toBe('version 3 removed');
  expect(changeText({ ...change, act: 'protect' })).toBe('production protected');
  expect(changeText({ ...change, act: 'unprotect' })).toBe('production not protected any more');
});

test('owners, members of the group that owns it, and admins may change a model, if they may submit', () => {
  expect(mayChange(MODEL, ADA)).toBe(true);
  expect(mayChange(MODEL, { ...ADA, groups: ['speech'] })).toBe(false);
  expect(mayChange(MODEL, { ...ADA, groups: [], admin: true })).toBe(true);
  expect(mayChange({ ...MODEL, owner: 'ada' }, { ...ADA, groups: [] })).toBe(true);
  expect(mayChange(MODEL, { ...ADA, submits: false })).toBe(false);
});

test('the best checkpoint is that of the metric; ties go to the lower trial and the earlier step', () => {
  const saved = (trial: number, step: number, loss: number | 'NaN' | null): CheckpointInfo =>
    ({ id: `${step}-1`, trial, step, metrics: loss === null ? {} : { loss } }) as unknown as CheckpointInfo;
  const all = [saved(2, 10, 0.5), saved(1, 20, 0.5), saved(1, 10, 0.5), saved(1, 30, 'NaN'), saved(3, 10, null)];
  expect(bestCheckpoint(all, { name: 'loss', mode: 'min' })).toMatchObject({ trial: 1, step: 10 });
  expect(bestCheckpoint([...all, saved(4, 1, 0.7)], { name: 'loss', mode: 'max' })).toMatchObject({ trial: 4 });
  expect(bestCheckpoint(all, { name: 'accuracy', mode: 'max' })).toBeUndefined();
});
