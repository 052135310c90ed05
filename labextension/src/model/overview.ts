/** Overview of an experiment, updated message by message, as in `kernel_backend/model/views/overview.py`. */

import type {
  Attempt,
  Experiment,
  ExperimentState,
  Message,
  Metric,
  Overview,
  StoredReport,
  Trial,
  TrialState
} from '../api/types';
import { bestFirst, better } from './best';
import { type Counts, countStates, lookedAt, MOST } from './showntrials';

const ATTEMPTS = 10; // newest attempts per trial, as in the service's answers

// Displayed state of an active experiment that is no search: the first of these that its trial has.
const LIVELIEST: readonly TrialState[] = ['running', 'starting', 'releasing', 'stopping'];
const ENDED: readonly string[] = ['stopped', 'completed', 'failed', 'pruned']; // experiments and trials

type Later = 'starting' | 'informational' | 'trial_counts' | 'default_trials' | 'found_batch_size' | 'artifacts_seq';
type OverviewMessage = Omit<Overview, 'trials' | Later> & Partial<Pick<Overview, Later>> & { trials: Older[] };
type Older = Omit<Trial, 'best'> & Partial<Trial>;

/**
 * Return the overview in an answer of the service, without the fields that the API adds for human readers; null if
 * there is none.
 */
export function overviewIn(json: unknown): Overview | null {
  if (typeof json !== 'object' || json === null || !('experiment' in json) || !('trials' in json)) {
    return null;
  }
  // Old notebooks have no counts, no best values of trials, and no artifacts.
  const {
    experiment,
    trials: told,
    trial_counts = {},
    attempts,
    wait,
    starting = '',
    warnings,
    informational = [],
    default_trials = null,
    found_batch_size = null,
    artifacts_seq = 0,
    seq
  } = json as OverviewMessage;
  const trials = Array.isArray(told) ? told.map(trial => ({ best: null, ...trial })) : told;
  const later = { starting, informational, trial_counts, default_trials, found_batch_size, artifacts_seq };
  return { experiment, trials, attempts, wait, warnings, ...later, seq };
}

/**
 * Return the state to display. A search runs from its submission to its end, and is queued only while it waits for
 * slots and holds none; any other active experiment has the state of its trial, or is queued.
 */
export function stateOf(overview: Overview): ExperimentState | TrialState | 'deleted' {
  if (isDeleted(overview)) {
    return 'deleted';
  }
  const { state, config } = overview.experiment;
  if (state !== 'active') {
    return state;
  }
  const holding = holdingState(overview);
  if (config.search === null) {
    const last = overview.trials[0]?.state ?? 'queued';
    return holding ?? (ENDED.includes(last) ? last : 'queued'); // soon the experiment has ended, too
  }
  const waits = inEnginesQueue(overview.attempts) || (overview.wait !== null && !overview.wait.starts);
  return holding === null && waits ? 'queued' : 'running';
}

/** Return the state of the most active trial that holds slots; null if none does. */
export function holdingState(overview: Overview): TrialState | null {
  const counts = countsOf(overview);
  const state = LIVELIEST.find(each => counts[each]) ?? null;
  return state === 'starting' && inEnginesQueue(overview.attempts) ? null : state;
}

/** Return whether all open attempts wait in their engine's own queue, such as Slurm's. */
function inEnginesQueue(attempts: readonly Attempt[]): boolean {
  const open = attempts.filter(attempt => attempt.state !== 'ended');
  return open.length > 0 && open.every(attempt => attempt.state === 'pending');
}

/** Return whether the experiment was deleted, and can be restored. */
export function isDeleted(overview: Overview): boolean {
  return typeof (overview.experiment as Partial<Experiment>).deleted_at === 'number';
}

/** Return the number of trials by state, without states of no trial. */
export function countsOf(overview: Overview): Counts {
  return Object.keys(overview.trial_counts).length ? overview.trial_counts : countStates(overview.trials);
}

/** Return the trial to show first: the best, or the first before any validation. */
export function frontOf(overview: Overview): Trial | undefined {
  return bestFirst(overview.trials, overview.experiment.config.metric)[0] ?? overview.trials[0];
}

/** Return whether the experiment has ended. */
export function ended(overview: Overview): boolean {
  return ENDED.includes(overview.experiment.state);
}

/** Return whether two overviews are of the same experiment: in another home, another experiment may have its number. */
export function sameExperiment(one: Overview, other: Overview): boolean {
  const [mine, theirs] = [one.experiment, other.experiment];
  return mine.number === theirs.number && mine.created_at === theirs.created_at && mine.snapshot === theirs.snapshot;
}

/**
 * Return the overview updated by a message of the stream; it is unchanged if it includes the message already, or if the
 * message is about another experiment.
 *
 * Objects that the message does not affect remain the same.
 */
export function after(overview: Overview, message: Message): Overview {
  if (message.seq <= overview.seq || message.experiment !== overview.experiment.number) {
    return overview;
  }
  const starting = ['trial', 'attempt', 'report'].includes(message.type) ? '' : overview.starting;
  return { ...overview, starting, ...changed(overview, message), seq: message.seq };
}

function changed(overview: Overview, message: Message): Partial<Overview> {
  switch (message.type) {
    case 'experiment':
      return { experiment: message.data };
    case 'trial':
      return { ...withTrial(overview, message.data), wait: null };
    case 'attempt':
      return { attempts: withAttempt(overview.attempts, message.data), wait: null };
    case 'report':
      return { trials: movedOn(overview.trials, message.data, overview.experiment.config.metric) };
    case 'note':
      return overview.warnings.includes(message.data.text)
        ? {}
        : {
            warnings: [...overview.warnings, message.data.text],
            informational:
              message.data.level === 'info' ? [...overview.informational, message.data.text] : overview.informational
          };
    case 'artifact':
      return { artifacts_seq: message.seq };
    case 'search':
      return {};
  }
}

/**
 * Return the fields of the overview that change with a trial; if there are very many trials, only those to display are
 * listed, and all are counted.
 */
function withTrial(overview: Overview, trial: Trial): Partial<Overview> {
  const others = overview.trials.filter(each => each.index !== trial.index);
  const trials = [...others, trial].sort((one, other) => one.index - other.index);
  if (Object.keys(overview.trial_counts).length === 0 && trials.length <= MOST) {
    return { trials };
  }
  const kept = lookedAt(trials, overview.experiment.config.metric);
  return {
    trials: trials.filter(each => kept.has(each.index)),
    trial_counts: recounted(overview, trial),
    attempts: overview.attempts.filter(attempt => kept.has(attempt.trial))
  };
}

function recounted(overview: Overview, trial: Trial): Counts {
  const counts = { ...countsOf(overview) };
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const known = overview.trials.find(each => each.index === trial.index)?.state;
  // A trial that is not displayed is paused, or has ended and does not change.
  const before = known ?? (trial.index <= total ? 'paused' : undefined);
  counts[trial.state] = (counts[trial.state] ?? 0) + 1;
  if (before !== undefined) {
    counts[before] = (counts[before] ?? 0) - 1;
  }
  return Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0));
}

function withAttempt(attempts: Attempt[], attempt: Attempt): Attempt[] {
  const kept = attempts.filter(each => each.trial !== attempt.trial || each.number !== attempt.number);
  const all = [...kept, attempt].sort((one, other) => one.trial - other.trial || one.number - other.number);
  const mine = all.filter(each => each.trial === attempt.trial);
  const dropped = new Set(mine.slice(0, -ATTEMPTS));
  return dropped.size ? all.filter(each => !dropped.has(each)) : all;
}

function movedOn(trials: Trial[], report: StoredReport, metric: Metric): Trial[] {
  const place = trials.findIndex(trial => trial.index === report.trial);
  const trial = trials[place];
  if (trial === undefined) {
    return trials;
  }
  const validation = report.kind === 'validation';
  const { step, epoch, metrics } = report;
  const newest = step < trial.step ? {} : { step, epoch, [validation ? 'metrics' : 'training']: metrics };
  // The report of an older attempt may arrive late.
  const best = validation ? better(trial.best, report, metric) : trial.best;
  const copy = [...trials];
  copy[place] = { ...trial, ...newest, best };
  return copy;
}
