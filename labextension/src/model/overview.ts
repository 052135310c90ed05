/** An experiment as a person looks at it, moved on message by message: what `kernel_backend/model/overview.py` does. */

import type { Attempt, ExperimentState, Message, Overview, StoredReport, Trial, TrialState } from './words';

const ATTEMPTS = 10; // of a trial: as many as the service gives

// What an active experiment is doing, from the liveliest of its trials.
const LIVELIEST: readonly TrialState[] = ['running', 'starting', 'releasing', 'stopping', 'queued', 'paused'];
const ENDED: readonly ExperimentState[] = ['stopped', 'completed', 'failed'];

/** The overview in an answer of the service, without what the API adds for those who read along; null if it is none. */
export function overviewIn(json: unknown): Overview | null {
  if (typeof json !== 'object' || json === null || !('experiment' in json) || !('trials' in json)) {
    return null;
  }
  const { experiment, trials, attempts, wait, warnings, seq } = json as Overview;
  return { experiment, trials, attempts, wait, warnings, seq };
}

/** The word on the chip: an active experiment shows what its liveliest trial does. */
export function stateOf(overview: Overview): ExperimentState | TrialState {
  const own = overview.experiment.state;
  if (own !== 'active') {
    return own;
  }
  const states = new Set(overview.trials.map(trial => trial.state));
  return LIVELIEST.find(state => states.has(state)) ?? own;
}

/** Whether the experiment has come to its end. */
export function ended(overview: Overview): boolean {
  return ENDED.includes(overview.experiment.state);
}

/** Whether both are pictures of one experiment: a number alone may be another's in another home. */
export function sameExperiment(one: Overview, other: Overview): boolean {
  const [mine, theirs] = [one.experiment, other.experiment];
  return mine.number === theirs.number && mine.created_at === theirs.created_at && mine.snapshot === theirs.snapshot;
}

/**
 * The overview with one more message taken in; one that it includes already, or of another experiment, changes nothing.
 * What a message does not touch stays the same object.
 */
export function after(overview: Overview, message: Message): Overview {
  if (message.seq <= overview.seq || message.experiment !== overview.experiment.number) {
    return overview;
  }
  return { ...overview, ...changed(overview, message), seq: message.seq };
}

function changed(overview: Overview, message: Message): Partial<Overview> {
  switch (message.type) {
    case 'experiment':
      return { experiment: message.data };
    case 'trial':
      return { trials: withTrial(overview.trials, message.data), wait: null };
    case 'attempt':
      return { attempts: withAttempt(overview.attempts, message.data), wait: null };
    case 'report':
      return { trials: movedOn(overview.trials, message.data) };
    case 'note':
      return overview.warnings.includes(message.data.text)
        ? {}
        : { warnings: [...overview.warnings, message.data.text] };
  }
}

function withTrial(trials: Trial[], trial: Trial): Trial[] {
  const kept = trials.filter(each => each.index !== trial.index);
  return [...kept, trial].sort((one, other) => one.index - other.index);
}

function withAttempt(attempts: Attempt[], attempt: Attempt): Attempt[] {
  const kept = attempts.filter(each => each.trial !== attempt.trial || each.number !== attempt.number);
  const all = [...kept, attempt].sort((one, other) => one.trial - other.trial || one.number - other.number);
  const mine = all.filter(each => each.trial === attempt.trial);
  const dropped = new Set(mine.slice(0, -ATTEMPTS));
  return dropped.size ? all.filter(each => !dropped.has(each)) : all;
}

function movedOn(trials: Trial[], report: StoredReport): Trial[] {
  const place = trials.findIndex(trial => trial.index === report.trial);
  const trial = trials[place];
  if (trial === undefined || report.step < trial.step) {
    return trials;
  }
  const moved = { ...trial, step: report.step, epoch: report.epoch };
  const copy = [...trials];
  copy[place] =
    report.kind === 'validation' ? { ...moved, metrics: report.metrics } : { ...moved, training: report.metrics };
  return copy;
}
