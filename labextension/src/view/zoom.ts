/** The part of the x axis that all plots of a view show. No DOM. */

export type Span = readonly [from: number, to: number];

const STEP = 0.25; // of the shown part, by which an arrow key moves it

/** Return the part that a key leads to, null for the whole axis; undefined if the key has no meaning. */
export function spanByKey(key: string, span: Span | null, whole: Span): Span | null | undefined {
  const [from, to] = span ?? whole;
  const size = to - from;
  switch (key) {
    case '+':
    case '=':
      return [from + size / 4, to - size / 4];
    case '-':
      return within(from - size / 2, 2 * size, whole);
    case 'ArrowLeft':
      return within(from - STEP * size, size, whole);
    case 'ArrowRight':
      return within(from + STEP * size, size, whole);
    case 'Escape':
    case '0':
      return null;
    default:
      return undefined;
  }
}

/** Return a part of this size, moved into the whole axis; null if it is all of it. */
function within(from: number, size: number, [low, high]: Span): Span | null {
  const start = Math.max(low, Math.min(from, high - size));
  return size >= high - low ? null : [start, start + size];
}
