/** A log as a terminal would show it. */

import { emptyText, LINES, LogText } from '../src/view/logtext';

function logged(...chunks: string[]): string {
  const log = new LogText();
  chunks.forEach(chunk => log.append(chunk));
  return log.text;
}

test('lines that come in pieces are put together', () => {
  expect(logged('one\ntw', 'o\nthr', 'ee')).toBe('one\ntwo\nthree');
});

test('colours and links are left out, also where a piece ends within one', () => {
  expect(logged('\u001b[1;32mgreen\u001b[0m \u001b]8;;http://x\u0007link\u001b]8;;\u0007')).toBe('green link');
  expect(logged('a\u001b[3', '1mred\u001b[0m')).toBe('ared');
  expect(logged('a\u001b[3')).toBe('a');
});

test('a progress bar takes one line: what follows a return replaces what stood there', () => {
  expect(logged(' 10%|#\r 50%|###\r', '100%|#####\ndone\n')).toBe('100%|#####\ndone\n');
  expect(logged('half\r')).toBe('half');
  expect(logged('windows\r\nlines\r\n')).toBe('windows\nlines\n');
  expect(logged('windows\r', '\nlines')).toBe('windows\nlines');
});

test('only the newest lines are kept, however much comes', () => {
  const many = Array.from({ length: 50_000 }, (_, index) => `line ${index}`).join('\n');
  const lines = logged(many).split('\n');
  expect([lines.length, lines[0], lines.at(-1)]).toEqual([LINES, 'line 48000', 'line 49999']);
});

test('a line without end is cut', () => {
  expect(logged('x'.repeat(100_000)).length).toBeLessThan(2100);
});

test('a line that never ends is not kept whole', () => {
  const log = new LogText();
  for (let times = 0; times < 20_000; times += 1) {
    log.append('x'.repeat(1_000)); // would take minutes if each were put to all that came before
  }
  expect(log.text.length).toBeLessThan(2100);
});

test('an empty log says "yet" only while something may come', () => {
  expect([false, true].map(emptyText)).toEqual(['nothing was written yet', 'nothing was written']);
});
