/** What is said of artifacts, and which of them are drawn. */

import type { Artifact, Overview } from '../src/api/types';
import { isPicture, isTable, kindText, MOST_TILES, savedText, seriesOf, tooLarge } from '../src/model/artifacts';
import { csvTable } from '../src/model/csv';
import { overviewIn } from '../src/model/overview';
import { overview } from './fakes';

function artifact(fields: Partial<Artifact> = {}): Artifact {
  const defaults = { trial: 1, name: 'net', attempt: 1, step: 3, at: 100, size: 512, digest: '00' };
  return { ...defaults, media: 'image/png', file: 'net.png', ...fields };
}

test('pictures in which nothing can run are drawn, and those that are not too large', () => {
  const media = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/svg+xml', 'text/html', 'text/csv'];
  expect(media.map(each => isPicture(artifact({ media: each })))).toEqual([
    true,
    true,
    true,
    true,
    false,
    false,
    false
  ]);
  expect(isPicture(artifact({ size: 5e6 }))).toBe(false);
});

test('a file is known by its suffix', () => {
  const files = ['table.csv', 'a.b.json', 'weights.safetensors', 'plain', '.x'];
  expect(files.map(file => kindText(artifact({ file })))).toEqual(['CSV', 'JSON', 'FILE', 'FILE', 'X']);
});

test('of a search it is said whose they are, and how many all trials have', () => {
  const all = [artifact(), artifact({ trial: 7 }), artifact({ trial: 7, name: 'table' })];
  expect(savedText(12, seriesOf(all), all, all, null)).toBe('');
  expect(savedText(12, seriesOf(all.slice(1)), all.slice(1), all, 7)).toBe('of trial 12.7: 2; of all trials: 3');
  expect(savedText(12, [], [], all, 8)).toBe('of trial 12.8: none; of all trials: 3');
});

test('what is not shown is counted, with the way to it', () => {
  const many = Array.from({ length: MOST_TILES + 2 }, (_, index) => artifact({ name: `net ${index}` }));
  expect(savedText(12, seriesOf(many), many, many, null)).toBe('2 more: %dl artifacts 12');
  expect(tooLarge(12, artifact({ name: 'a b' }))).toBe("a b is too large for a page: %dl artifacts 12.1 --get 'a b'");
});

test('those that were saved at later and later steps are one series, by their last number', () => {
  const named = (name: string, step: number, media = 'image/png'): Artifact => artifact({ name, step, media });
  const all = [named('samples 100', 100), named('net', 0), named('samples 20', 20), named('samples 3', 3)];
  expect(seriesOf(all).map(({ name, items }) => [name, ...items.map(each => each.step)])).toEqual([
    ['samples', 3, 20, 100],
    ['net', 0]
  ]);
  const alike = [named('layer 1', 0), named('layer 2', 0), named('a-1', 1), named('a-2', 2, 'text/csv')];
  expect(seriesOf(alike).map(({ name }) => name)).toEqual(['layer 1', 'layer 2', 'a-1', 'a-2']);
  const trials = [artifact({ name: 'a 1', step: 1 }), artifact({ name: 'a 2', step: 2, trial: 2 })];
  expect(seriesOf(trials)).toHaveLength(2);
});

test('a series keeps its tile while it grows', () => {
  const [first] = seriesOf([artifact({ name: 'a 1', step: 1 }), artifact({ name: 'a 2', step: 2 })]);
  const [later] = seriesOf([1, 2, 3].map(step => artifact({ name: `a ${step}`, step })));
  expect(later?.key).toBe(first?.key);
});

test('tables are shown unless they are large', () => {
  const table = artifact({ media: 'text/csv', file: 'table.csv' });
  expect([isTable(table), isTable({ ...table, size: 2e6 }), isTable(artifact())]).toEqual([true, false, false]);
  expect(csvTable('a,b\n1,"two, ""2"""\r\n3,\n', false)).toEqual({
    head: ['a', 'b'],
    rows: [
      ['1', 'two, "2"'],
      ['3', '']
    ],
    left: ''
  });
  expect(csvTable('a\tb\n1\t2,5', true).rows).toEqual([['1', '2,5']]);
  expect(csvTable('', false)).toEqual({ head: [], rows: [], left: '' });
  expect(csvTable('a,b\n1,', false).rows).toEqual([['1', '']]);
});

test('of a long and wide table the beginning is shown, and the rest is counted', () => {
  const wide = Array.from({ length: 42 }, (_, index) => index).join(',');
  const found = csvTable(Array.from({ length: 1402 }, () => wide).join('\n'), false);
  expect([found.head.length, found.rows.length, found.left]).toEqual([40, 200, '1,201 more rows, 2 more columns']);
});

test('a notebook that was saved before there were artifacts has none', () => {
  const before: Partial<Overview> = { ...overview() };
  delete before.artifacts_seq;
  expect(overviewIn(before)).toEqual(overview());
});
