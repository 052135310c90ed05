/** Format times and counts for this page. */

import type { Wait } from '../api/types';
import { duration } from '../model/text';

const CLOCK = /* @__PURE__ */ new Intl.DateTimeFormat('en-GB', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit'
});
const DAY = /* @__PURE__ */ new Intl.DateTimeFormat('en-GB', {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit'
});

/** Format the time of day: `14:03:10`. */
export function clockText(at: number): string {
  return CLOCK.format(1000 * at);
}

/** Format a date and time: `22 Nov, 14:03`. */
export function dayText(at: number): string {
  return DAY.format(1000 * at);
}

/** Format the estimated wait of a request: `about 12 min`; `–` without an estimate. */
export function estimateText(wait: Wait | null): string {
  return wait?.estimate == null ? '–' : `about ${approximately(wait.estimate)}`;
}

/** Format an estimated duration, rounded: `a minute`, `12 min`, `3 h`, `2 d`. */
export function approximately(seconds: number): string {
  if (seconds < 60) {
    return 'a minute';
  }
  if (seconds < 5400) {
    return `${Math.round(seconds / 60)} min`;
  }
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** Format the time since `at`, during which something has waited or run. */
export function sinceText(at: number, now: number): string {
  return duration(Math.max(0, now - at));
}
