/** Validate the state in a notebook's output before use, since notebooks are edited, merged and damaged. */

import type { Curve, Curves, Overview, Value } from './api/types';
import { overviewIn } from './model/overview';
import type { Saved, SavedSearch } from './model/saved';

const COLUMNS = ['size', 'step', 'epoch', 'at', 'mean', 'low', 'high', 'broken'] as const;

/** Return the parts of a saved state that this version can show; null if there are none. */
export function savedIn(data: unknown): Saved | null {
  if (!isRecord(data)) {
    return null;
  }
  const { version, number, at, captured, overview, curves, search } = data;
  const shown = overviewIn(overview);
  if (version !== 1 || typeof number !== 'number' || typeof at !== 'number' || shown === null) {
    return null;
  }
  if (!isWhole(shown) || shown.experiment.number !== number) {
    return null;
  }
  const names = strings(data.names);
  return {
    version,
    number,
    at,
    captured: strings(captured),
    names,
    overview: { ...shown, experiment: { ...shown.experiment, params: inOrder(shown.experiment.params, names) } },
    curves: isDrawable(curves) ? curves : null,
    search: isSearch(search) ? search : null
  };
}

function strings(list: unknown): string[] {
  return Array.isArray(list) ? list.filter(each => typeof each === 'string') : [];
}

function inOrder(params: Record<string, Value>, names: readonly string[]): Record<string, Value> {
  const place = (name: string): number => (names.includes(name) ? names.indexOf(name) : names.length);
  return Object.fromEntries(Object.entries(params).sort(([one], [other]) => place(one) - place(other)));
}

function isWhole({ experiment, trials, attempts, warnings }: Overview): boolean {
  return (
    isRecord(experiment) &&
    isRecord(experiment.config) &&
    isRecord(experiment.params) &&
    [trials, attempts, warnings].every(Array.isArray) &&
    trials.every(
      trial =>
        isRecord(trial) &&
        isRecord(trial.metrics) &&
        isRecord(trial.training) &&
        Array.isArray(trial.holds) &&
        (trial.best === null || (isRecord(trial.best) && typeof trial.best.value === 'number'))
    ) &&
    attempts.every(attempt => isRecord(attempt) && Array.isArray(attempt.placement))
  );
}

/** Return whether curves are valid; damaged ones are left out, since the service still has them. */
function isDrawable(curves: unknown): curves is Curves {
  return isRecord(curves) && Array.isArray(curves.curves) && curves.curves.every(isCurve);
}

/** Return whether the saved status of a search is valid; a damaged one is left out. */
function isSearch(search: unknown): search is SavedSearch {
  if (!isRecord(search) || !isRecord(search.standing) || !isRecord(search.curves)) {
    return false;
  }
  const { trials, incumbent, brackets, params, counts, metric, search: asked, best } = search.standing;
  const { lines, metric: drawn } = search.curves;
  return (
    [trials, incumbent, brackets, params, lines].every(Array.isArray) &&
    [counts, metric, drawn, asked].every(isRecord) &&
    (best === null || isRow(best)) &&
    (trials as unknown[]).every(isRow) &&
    (incumbent as unknown[]).every(isRecord) &&
    (brackets as unknown[]).every(each => isRecord(each) && Array.isArray(each.rungs) && each.rungs.every(isRung)) &&
    (lines as unknown[]).every(each => isRecord(each) && Array.isArray(each.unit) && Array.isArray(each.value))
  );
}

function isRow(row: unknown): boolean {
  return isRecord(row) && isRecord(row.params) && typeof row.trial === 'number';
}

function isRung(rung: unknown): boolean {
  return isRecord(rung) && Array.isArray(rung.entries) && rung.entries.every(Array.isArray);
}

function isCurve(curve: unknown): curve is Curve {
  return isRecord(curve) && COLUMNS.every(name => Array.isArray(curve[name]));
}

function isRecord(thing: unknown): thing is Record<string, unknown> {
  return typeof thing === 'object' && thing !== null && !Array.isArray(thing);
}
