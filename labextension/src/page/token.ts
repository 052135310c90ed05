/** The token with which `daylight open` opens the page of one's own service: behind the #, which no server is sent. */

const KEY = 'daylight-token';
const GIVEN = /^#token=([\w-]+)$/;

/** The one that was given, now or before in this tab; null behind a hub. The address forgets it at once. */
export function ownToken(
  place: Pick<Location, 'hash' | 'pathname' | 'search'>,
  kept: Pick<Storage, 'getItem' | 'setItem'>,
  past: Pick<History, 'replaceState'>
): string | null {
  const given = GIVEN.exec(place.hash)?.[1];
  if (given !== undefined) {
    kept.setItem(KEY, given);
    past.replaceState(null, '', place.pathname + place.search);
  }
  return kept.getItem(KEY);
}
