/** Estimate the remaining time of a running trial from the recent durations of its steps. */

import type { Attempt, Curve, Overview, Trial } from '../api/types';
import { checkpointStep, type Throughput } from './text';

const LATELY_S = 60; // the speed is measured over at least this time, and at least the last quarter of the attempt
const LATELY_PART = 0.25;

interface Mark {
  step: number;
  at: number;
}

interface StepRate {
  perStep: number; // seconds
  silence: number; // seconds: the longest time between two reports
  newest: Mark;
}

/**
 * Return how fast a trial is, and when it has taken its last step; null if it is not running, or has reported too little.
 *
 * A new attempt is assumed to be as fast as the previous one, from the step at which it resumes: it repeats steps that
 * were reported already, and reports nothing meanwhile. `now` is in seconds since the epoch.
 */
export function throughputOf(overview: Overview, curves: readonly Curve[], now: number, index = 1): Throughput | null {
  const trial = overview.trials.find(each => each.index === index);
  const total = trial?.total_steps ?? null;
  if (trial?.state !== 'running' || total === null) {
    return null;
  }
  const attempts = overview.attempts.filter(attempt => attempt.trial === index).reverse();
  const [marks, newest] = [marksOf(curves), attempts[0]];
  let until = Infinity;
  for (const attempt of attempts) {
    const rate = rateOf(attempt, until, marks);
    if (rate && newest) {
      const left = attempt === newest ? goingOn(rate, total, now) : goingOnAgain(newest, rate, trial, total, now);
      return { perSecond: 1 / rate.perStep, left };
    }
    until = attempt.created_at;
  }
  return null;
}

/**
 * Return the remaining seconds of an attempt that has reported steps; `total` is the number of its last step.
 *
 * The time since the newest report is subtracted up to the longest recent pause between reports, and added beyond it,
 * so that the estimate for a hanging training grows instead of reaching zero.
 */
function goingOn(rate: StepRate, total: number, now: number): number {
  const silence = Math.max(0, now - rate.newest.at);
  const usual = Math.min(silence, rate.silence);
  const left = (total - rate.newest.step) * rate.perStep;
  return Math.max(0, left - usual) + (silence - usual);
}

function goingOnAgain(newest: Attempt, before: StepRate, trial: Trial, total: number, now: number): number {
  const whole = (total - checkpointStep(newest.resume_from)) * before.perStep;
  const least = (total - trial.step) * before.perStep;
  return Math.max(whole - Math.max(0, now - newest.created_at), least);
}

/** Return the speed of an attempt over its newest reports before the time `until`; null with fewer than two. */
function rateOf(attempt: Attempt, until: number, marks: readonly Mark[]): StepRate | null {
  const lately = latelyOf(marks.filter(mark => mark.at >= attempt.created_at && mark.at < until));
  const [start, newest] = [lately[0], lately.at(-1)];
  if (!start || !newest || newest.step <= start.step || newest.at <= start.at) {
    return null;
  }
  const silence = Math.max(...lately.map((mark, place) => mark.at - (lately[place - 1] ?? mark).at));
  return { perStep: (newest.at - start.at) / (newest.step - start.step), silence, newest };
}

function latelyOf(marks: readonly Mark[]): readonly Mark[] {
  const [first, newest] = [marks[0], marks.at(-1)];
  if (!first || !newest) {
    return [];
  }
  const since = newest.at - Math.max(LATELY_S, LATELY_PART * (newest.at - first.at));
  const early = marks.filter(mark => mark.at <= since).length;
  return marks.slice(Math.max(0, early - 1));
}

/** Return when steps were reported, by the training loss if there is one, else by another curve. */
function marksOf(curves: readonly Curve[]): Mark[] {
  const training = curves.filter(curve => curve.kind === 'training');
  const curve = training.find(each => each.metric === 'loss') ?? training[0] ?? curves[0];
  return curve ? curve.step.map((step, place) => ({ step, at: curve.at[place] ?? 0 })) : [];
}
