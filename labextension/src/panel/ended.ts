/** Select the ended experiments of which the user has not been notified. No DOM, no clock. */

import type { EndedExperiment, EndedExperiments } from '../api/types';

const OVERLAP_S = 60; // an experiment may be stored somewhat later than the time of its end
const SINGLY = 3; // more ended experiments than this get one notice together

/** Ends of experiments that a browser has seen: `since` is the newest time, `known` the ends shortly before it. */
export interface Remembered {
  readonly since: number; // seconds since the epoch, by the service's clock
  readonly known: readonly string[]; // `number@time` each
}

/** A notice to show; `number` is the experiment that it opens, null for several. */
export interface EndNotice {
  readonly kind: 'success' | 'error' | 'info';
  readonly text: string;
  readonly number: number | null;
}

/** Return the time from which to request endings; null before the first answer. */
export function askSince(remembered: Remembered | null): number | null {
  return remembered === null ? null : Math.max(0, Math.floor(remembered.since - OVERLAP_S));
}

/**
 * Return the ends in an answer of which the user must be notified, and what the browser remembers from then on.
 *
 * A browser that remembers nothing gets no notices of the past, and experiments with a visible view get none.
 */
export function news(
  remembered: Remembered | null,
  answer: EndedExperiments,
  visible: ReadonlySet<number>
): { remembered: Remembered; fresh: EndedExperiment[] } {
  const times = answer.ended.map(each => each.ended_at);
  const since = Math.max(remembered?.since ?? answer.at, ...times);
  const recent = answer.ended.filter(each => each.ended_at > since - 2 * OVERLAP_S).map(keyOf);
  const fresh = answer.ended.filter(each => isNews(remembered, each) && !visible.has(each.number));
  return { remembered: { since, known: recent }, fresh: remembered === null ? [] : fresh };
}

/** Return the notices of ended experiments: one for each, or a single one if there are more than `SINGLY`. */
export function noticesOf(fresh: readonly EndedExperiment[]): EndNotice[] {
  if (fresh.length > SINGLY) {
    const failed = fresh.filter(each => each.state === 'failed').length;
    const numbers = fresh.map(each => `#${each.number}`).join(', ');
    const which = failed ? `, ${failed} of them failed` : '';
    return [{ kind: 'info', text: `${fresh.length} experiments have ended${which}: ${numbers}`, number: null }];
  }
  return fresh.map(each => ({ kind: KINDS[each.state] ?? 'info', text: each.text, number: each.number }));
}

const KINDS: Readonly<Record<string, EndNotice['kind']>> = { completed: 'success', failed: 'error' };

/** Return what a browser has stored; null if that is nothing, or damaged. */
export function rememberedIn(text: string | null): Remembered | null {
  try {
    const { since, known } = JSON.parse(text ?? 'null') as Remembered;
    return typeof since === 'number' && Array.isArray(known) ? { since, known: known.map(String) } : null;
  } catch {
    return null;
  }
}

function isNews(remembered: Remembered | null, ending: EndedExperiment): boolean {
  return (
    remembered !== null && ending.ended_at > remembered.since - OVERLAP_S && !remembered.known.includes(keyOf(ending))
  );
}

function keyOf({ number, ended_at }: EndedExperiment): string {
  return `${number}@${ended_at}`;
}
