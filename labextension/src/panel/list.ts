/** What the panel asks for, what it shows of the answer, and when it asks again. No DOM, no clock. */

import type { Overview, Trial } from '../api/types';
import { num } from '../model/curves';
import { ended, stateOf } from '../model/overview';
import { lossFirst, metricsText, newestOf } from '../model/text';
import type { Query } from '../service/source';

export const PAGE = 50; // experiments
const OF_A_NOTEBOOK = 500; // are looked through for those of one notebook
const MOST = 1000; // that the service tells at once
const LONGEST_S = 15; // between two looks
const SLOWER = 1.5;

/** The chips: states that people look for. */
export const STATES = ['running', 'queued', 'paused', 'completed', 'failed', 'stopped', 'deleted'] as const;

export interface Filter {
  readonly search: string;
  readonly state: string | null;
  readonly notebook: string | null; // a path as the Lab knows it
}

export const EVERYTHING: Filter = { search: '', state: null, notebook: null };

export function isNarrow(filter: Filter): boolean {
  return filter.search.trim() !== '' || filter.state !== null || filter.notebook !== null;
}

export function queryFor(filter: Filter, limit: number): Query {
  const search = filter.search.trim();
  return {
    ...(search ? { search } : {}),
    ...(filter.state ? { state: filter.state } : {}),
    limit: Math.min(filter.notebook === null ? limit : Math.max(limit, OF_A_NOTEBOOK), MOST)
  };
}

/** Whether there may be more than this answer to a query has. */
export function maybeMore(found: readonly Overview[], query: Query): boolean {
  const limit = Number(query.limit);
  return found.length >= limit && limit < MOST;
}

/** Those of a notebook; the service knows its whole path, the Lab the path below the server's root. */
export function ofNotebook(found: readonly Overview[], notebook: string | null): readonly Overview[] {
  if (notebook === null) {
    return found;
  }
  const path = notebook.replace(/^[^/:]*:/, ''); // without the name of a drive
  return found.filter(({ experiment }) => {
    const whole = experiment.notebook?.replaceAll('\\', '/');
    return whole === path || !!whole?.endsWith(`/${path}`);
  });
}

/** What an answer tells about the pace of things. */
export interface Heard {
  failed: boolean;
  moved: boolean; // something is not as it was the last time
  active: boolean;
}

/** Seconds until the next look: soon while something goes on, then later and later. */
export function nextPause(before: number, refreshSeconds: number, heard: Heard): number {
  if (!heard.failed && (heard.moved || heard.active)) {
    return refreshSeconds;
  }
  return Math.max(refreshSeconds, Math.min(before * SLOWER, LONGEST_S));
}

/** Whether one of them is at work, not only waiting. */
export function isActive(found: readonly Overview[]): boolean {
  return found.some(each => !ended(each) && !['queued', 'paused'].includes(stateOf(each)));
}

/** Whether there is something new since the last answer. */
export function hasMoved(before: readonly Overview[], found: readonly Overview[]): boolean {
  return before.length !== found.length || before[0]?.seq !== found[0]?.seq;
}

/** A metric as an item says it; `broken` where no number is left of it. */
export interface MetricText {
  readonly name: string;
  readonly text: string;
  readonly broken: boolean;
}

/** The parts of what `newestText` says of a trial. */
export function toldBy(trial: Trial): MetricText[] {
  const [kind, metrics] = newestOf(trial);
  return lossFirst(metrics).map(([name, value], index) => ({
    name,
    text: (index === 0 && kind === 'training' ? 'training ' : '') + metricsText({ [name]: value }),
    broken: !Number.isFinite(num(value))
  }));
}

/** Where an arrow key leads to from one of `count` places; null where the key means something else. */
export function placeAfter(key: string, place: number, count: number): number | null {
  const places: Record<string, number> = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: count - 1 };
  const next = places[key];
  return next === undefined ? null : Math.min(Math.max(next, 0), count - 1);
}

/** The experiments that a person names: `12 15`, `#12, #15`. */
export function numbersIn(text: string): number[] {
  const found = text.match(/\d+/g) ?? [];
  return [...new Set(found.map(Number))].filter(number => number > 0 && number < 1e9);
}
