/** Times and counts as this page writes them. */

import type { Wait } from '../api/types';
import { duration } from '../model/text';

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });

/** `14:03:10`. */
export function clockText(at: number): string {
  return CLOCK.format(1000 * at);
}

/** `22 Nov, 14:03`. */
export function dayText(at: number): string {
  return DAY.format(1000 * at);
}

/** In how long an ask will start, approximately: `about 12 min`; `–` where nobody can say. */
export function estimateText(wait: Wait | null): string {
  return wait?.estimate == null ? '–' : `about ${approximately(wait.estimate)}`;
}

/** `a minute`, `12 min`, `3 h`, `2 d`: as exact as an estimate is. */
export function approximately(seconds: number): string {
  if (seconds < 60) {
    return 'a minute';
  }
  if (seconds < 5400) {
    return `${Math.round(seconds / 60)} min`;
  }
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** For how long something has waited or run. */
export function sinceText(at: number, now: number): string {
  return duration(Math.max(0, now - at));
}
