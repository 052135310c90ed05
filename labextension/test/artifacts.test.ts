/** What is said of artifacts, and which of them are drawn. */

import type { Artifact, Overview } from '../src/api/types';
import { isPicture, kindText, MOST_TILES, savedText, tooLarge, whenText } from '../src/model/artifacts';
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
  expect(savedText(12, all, all, null)).toBe('');
  expect(savedText(12, all.slice(1), all, 7)).toBe('of trial 12.7: 2; of all trials: 3');
  expect(savedText(12, [], all, 8)).toBe('of trial 12.8: none; of all trials: 3');
});

test('what is not shown is counted, with the way to it', () => {
  const many = Array.from({ length: MOST_TILES + 2 }, (_, index) => artifact({ name: `net ${index}` }));
  expect(savedText(12, many, many, null)).toBe('2 more: %dl artifacts 12');
  expect(tooLarge(12, artifact({ name: 'a b' }))).toBe("a b is too large for a page: %dl artifacts 12.1 --get 'a b'");
});

test('of today it is the time, of before the date', () => {
  const now = new Date(2026, 10, 22, 14, 3).getTime() / 1000;
  expect(whenText(now - 60, now)).toBe(
    new Date(2026, 10, 22, 14, 2).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })
  );
  expect(whenText(now - 2 * 86_400, now)).toBe(new Date(2026, 10, 20).toLocaleDateString());
});

test('a notebook that was saved before there were artifacts has none', () => {
  const before: Partial<Overview> = { ...overview() };
  delete before.artifacts_seq;
  expect(overviewIn(before)).toEqual(overview());
});
