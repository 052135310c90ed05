/** Name, note and tags: what an edit of them asks for. */

import type { Experiment } from '../src/api/types';
import { editOf, labelsOf, tagsIn } from '../src/model/labels';
import { experiment } from './fakes';

const before = { name: 'net', tags: ['draft', 'paper'], note: 'slow' };

test('an experiment of a notebook that knows no labels has none', () => {
  const older: Partial<Experiment> = experiment();
  delete older.note;
  delete older.tags;
  expect(labelsOf(older as Experiment)).toEqual({ name: 'digits', tags: [], note: '' });
});

test.each([
  ['', []],
  [' a,b  c,, ', ['a', 'b', 'c']],
  ['a a', ['a']]
])('%j are the tags %j', (text, tags) => {
  expect(tagsIn(text)).toEqual(tags);
});

test('an edit asks for what differs alone', () => {
  expect(editOf(before, { ...before })).toBeNull();
  expect(editOf(before, { ...before, name: '' })).toEqual({ name: '' });
  expect(editOf(before, { name: 'net', tags: ['paper', 'good'], note: '' })).toEqual({
    note: '',
    add_tags: ['good'],
    remove_tags: ['draft']
  });
});
