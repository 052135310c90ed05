/** Format when an experiment was submitted, started and ended, with the same wording as `kernel_backend/text/dates.py`. */

import type { Overview } from '../api/types';

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const LONG_AGO = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric' });

/** Format a time, in seconds since the epoch: `today 21:14`, `yesterday 21:14`, `28 Nov 21:14` or `28 Nov 2025`. */
export function whenText(at: number, now: number): string {
  const [day, today] = [new Date(1000 * at), new Date(1000 * now)];
  if (day.getFullYear() !== today.getFullYear() && daysBetween(day, today) > 1) {
    return LONG_AGO.format(day);
  }
  const word = { 0: 'today', 1: 'yesterday' }[daysBetween(day, today)] ?? DAY.format(day);
  return `${word} ${CLOCK.format(day)}`;
}

/** Return when an experiment first held slots; null if it has not yet. */
export function startedAt({ experiment, attempts }: Overview): number | null {
  const granted = attempts.flatMap(each => (each.granted_at === null ? [] : [each.granted_at]));
  // Of a trial with many attempts the first are not known here.
  const whole = attempts.some(each => each.number === 1);
  return granted.length === 0 ? null : whole ? Math.min(...granted) : experiment.created_at;
}

/** Format when an experiment started and ended: `started today 21:14, ended 21:18`; before, when it was submitted. */
export function spanText(overview: Overview, now: number): string {
  const { created_at, ended_at } = overview.experiment;
  const started = startedAt(overview);
  const begun = started === null ? `submitted ${whenText(created_at, now)}` : `started ${whenText(started, now)}`;
  if (ended_at === null) {
    return begun;
  }
  const sameDay = daysBetween(new Date(1000 * (started ?? created_at)), new Date(1000 * ended_at)) === 0;
  return `${begun}, ended ${sameDay ? CLOCK.format(1000 * ended_at) : whenText(ended_at, now)}`;
}

/** Format the times of `spanText` as dates with seconds, for a tooltip. */
export function spanTitle(overview: Overview): string {
  const { created_at, ended_at } = overview.experiment;
  const times = { submitted: created_at, started: startedAt(overview), ended: ended_at };
  return Object.entries(times)
    .flatMap(([word, at]) => (at === null ? [] : [`${word} ${new Date(1000 * at).toLocaleString()}`]))
    .join('\n');
}

/** Format what tells an experiment from others of its name: `today 21:14 · quickstart.ipynb`. */
export function originText({ created_at, notebook }: Overview['experiment'], now: number): string {
  const file = notebook?.split(/[/\\]/).pop();
  return [whenText(created_at, now), ...(file ? [file] : [])].join(' \u00b7 ');
}

function daysBetween(earlier: Date, later: Date): number {
  const midnights = [earlier, later].map(each => Date.UTC(each.getFullYear(), each.getMonth(), each.getDate()));
  return ((midnights[1] ?? 0) - (midnights[0] ?? 0)) / 86_400_000;
}
