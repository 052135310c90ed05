/**
 * Token with which `daylight open` opens the page of a single user's service: it is in the URL's fragment, which
 * browsers do not send.
 */

const KEY = 'daylight-token';
const GIVEN = /^#token=([\w-]+)$/;

/**
 * Return the token of the URL, also if it was there earlier in this tab, and remove it from the URL; null behind a hub.
 */
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
