/** Arrow keys, and others that move the focus between items. */

/** Return the index of the item that a key selects among `count` items, a page of which is `page`; null for others. */
export function placeAfter(key: string, place: number, count: number, page = 0): number | null {
  const places: Record<string, number> = {
    ArrowDown: place + 1,
    ArrowUp: place - 1,
    ...(page ? { PageDown: place + page, PageUp: place - page } : {}),
    Home: 0,
    End: count - 1
  };
  const next = places[key];
  return next === undefined ? null : Math.min(Math.max(next, 0), count - 1);
}
