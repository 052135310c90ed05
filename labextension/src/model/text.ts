/** Format records as text, with the same wording as `kernel_backend/text/`. */

import type {
  Attempt,
  Best,
  Config,
  Failure,
  Frame,
  Kind,
  Metrics,
  Num,
  Overview,
  Search,
  Space,
  StoredReport,
  Trial,
  TrialState,
  Value,
  Wait
} from '../api/types';
import { num } from './curves';
import { countsOf, ended, frontOf, stateOf } from './overview';
import { firstLine, fixed, general, repr, rounded } from './python';

/** Format a duration: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 07 min`, `1 d 03 h`. */
export function duration(seconds: number): string {
  if (seconds < 10) {
    return `${fixed(Math.max(seconds, 0), 1)} s`;
  }
  const whole = rounded(seconds);
  if (whole < 60) {
    return `${whole} s`;
  }
  if (whole < 3600) {
    return `${Math.floor(whole / 60)} min ${twoDigits(whole % 60)} s`;
  }
  if (whole < 86400) {
    return `${Math.floor(whole / 3600)} h ${twoDigits(Math.floor((whole % 3600) / 60))} min`;
  }
  return `${Math.floor(whole / 86400)} d ${twoDigits(Math.floor((whole % 86400) / 3600))} h`;
}

function twoDigits(count: number): string {
  return String(count).padStart(2, '0');
}

/** Format a number of bytes in powers of 1000: `512 B`, `1.5 MB`. */
export function size(count: number): string {
  if (count < 1000) {
    return `${count} B`;
  }
  let amount = count / 1000;
  for (const unit of ['kB', 'MB', 'GB']) {
    if (amount < 1000) {
      return `${fixed(amount, 1)} ${unit}`;
    }
    amount /= 1000;
  }
  return `${fixed(amount, 1)} TB`;
}

/** Format a number with four significant digits: `0.412`, `12.5`, `1.2e-05`, `nan`. */
export function number(value: Num): string {
  const amount = num(value);
  if (Number.isNaN(amount)) {
    return 'nan';
  }
  if (!Number.isFinite(amount)) {
    return amount > 0 ? 'inf' : '-inf';
  }
  return Number.isInteger(amount) && Math.abs(amount) < 1e6 ? String(amount) : general(amount);
}

/** Format metrics, the loss first: `loss 0.412  accuracy 0.912`. */
export function metricsText(metrics: Metrics): string {
  return lossFirst(metrics)
    .map(([name, value]) => `${name} ${number(value)}`)
    .join('  ');
}

/** Return metrics as pairs of name and value, the loss first. */
export function lossFirst(metrics: Metrics): [string, Num][] {
  return Object.entries(metrics).sort(([one], [other]) => Number(other === 'loss') - Number(one === 'loss'));
}

/** Return the newest values of a trial and their kind: of the validation if there is any, else of the training. */
export function newestOf(trial: Trial): [Kind, Metrics] {
  return Object.keys(trial.metrics).length > 0 ? ['validation', trial.metrics] : ['training', trial.training];
}

/** Format the newest validation values; `training loss 0.412` if there is no validation of a training. */
export function newestText(trial: Trial, config: Config): string {
  const [kind, metrics] = newestOf(trial);
  const text = metricsText(metrics);
  return text && kind === 'training' && !usesModel(config) ? `training ${text}` : text;
}

/**
 * Format the number of an experiment: the best value of its `--metric`, where it was, and the newest beside it:
 * `accuracy 0.9697 best, epoch 6 \u00b7 now 0.9461`; of an evaluation, and without a value of the
 * metric, the newest values of the trial.
 */
export function resultText(overview: Overview): string {
  const trial = frontOf(overview);
  const { config } = overview.experiment;
  if (!trial?.best || config.form === 'evaluation') {
    return trial ? newestText(trial, config) : '';
  }
  const { metric, search } = config;
  const best = `${metric.name} ${number(trial.best.value)} best`;
  const which = search === null ? [] : [`trial ${trial.experiment}.${trial.index}`];
  const said = [best, ...which, ...placeOf(trial.best, config)].join(', ');
  const newest = trial.metrics[metric.name];
  if (search !== null || newest === undefined || num(newest) === num(trial.best.value)) {
    return said;
  }
  return `${said} \u00b7 ${ended(overview) ? 'last' : 'now'} ${number(newest)}`;
}

function placeOf(best: Best, config: Config): string[] {
  if (runsAsItIs(config) || config.steps !== null) {
    return best.step ? [`step ${best.step}`] : [];
  }
  return [`epoch ${number(best.epoch)}`];
}

/** Format hyperparameters in the order of the definition: `width=64 lr=0.01`. */
export function paramsText(params: Record<string, Value>): string {
  return Object.entries(params)
    .map(([name, value]) => `${name}=${repr(value)}`)
    .join(' ');
}

/** Format a hyperparameter's value in few characters: `0.003142`, `64`, `adam`. */
export function valueText(value: Value): string {
  if (typeof value === 'number') {
    return Number.isInteger(value) && Math.abs(value) < 1e15 ? String(value) : number(value);
  }
  return typeof value === 'string' ? value : repr(value);
}

/**
 * Format the progress of a search: `12 of 64 trials: 3 running, 9 paused; error 0.034 best, trial 12.7, epoch 9: lr=0.003`.
 *
 * Only searched hyperparameters are shown, in short form. Returns "" for an experiment without a search.
 */
export function searchText(overview: Overview): string {
  if (overview.experiment.config.search === null) {
    return '';
  }
  const counts = countsOf(overview);
  const states = STATES.filter(state => counts[state]).map(
    state => `${counts[state] ?? 0} ${trialWord(state, ended(overview))}`
  );
  const said = trialsText(overview) + (states.length ? `: ${states.join(', ')}` : ' yet');
  const front = frontOf(overview);
  if (!front?.best) {
    return said;
  }
  const params = searchedText(front.params, overview.experiment.space);
  return `${said}; ${resultText(overview)}${params && `: ${params}`}`;
}

/** Format the number of trials: `12 of 64 trials`, `12 trials` without a limit; "" without a search. */
export function trialsText(overview: Overview): string {
  const text = trialCount(overview);
  return text.includes(' of ') ? `${text} trials` : text;
}

function trialCount(overview: Overview): string {
  const { search } = overview.experiment.config;
  if (search === null) {
    return '';
  }
  const total = Object.values(countsOf(overview)).reduce((sum, count) => sum + count, 0);
  const most = limitOf(search, overview);
  return most !== null && total <= most ? `${total} of ${most}` : `${total} trial${total === 1 ? '' : 's'}`;
}

/**
 * Format the searched hyperparameters: `lr=0.003142 blocks=3`. A list of blocks is shown by its length; if the search
 * space names no hyperparameter, all are shown.
 */
function searchedText(params: Record<string, Value>, space: Space): string {
  const own = space.parameters.filter(each => each.each === null).map(each => each.name);
  const names = own.length ? own : Object.keys(params);
  return names
    .flatMap(name => {
      const value = params[name];
      return value === undefined ? [] : [`${name}=${Array.isArray(value) ? value.length : valueText(value)}`];
    })
    .join(' ');
}

/** Return the maximum number of trials; null if the budget, the time or the method determines it. */
export function limitOf(search: Search, overview: Overview): number | null {
  if (search.budget !== null || search.max_time !== null) {
    return search.trials;
  }
  return search.trials ?? overview.default_trials ?? null; // older versions saved no default
}

const FEW_NODES = 4; // up to this number, nodes are shown by name

const STATES: readonly TrialState[] = [
  'queued',
  'starting',
  'running',
  'releasing',
  'paused',
  'stopping',
  'completed',
  'stopped',
  'pruned',
  'failed'
];

/** Format the current epoch, or the one that has just ended: `epoch 3/10`; `epoch 3` if `epochs` is not known. */
export function epochText(epoch: number, epochs: number | null): string {
  // Rounding errors may make a complete epoch slightly more than an integer: 3 steps of 1/3.
  const now = Math.max(Math.ceil(epoch - 1e-6), 0);
  return epochs === null ? `epoch ${now}` : `epoch ${Math.min(now, epochs)}/${epochs}`;
}

/** Return the number of epochs; null if only the program knows when it ends. */
export function knownEpochs(config: Config): number | null {
  return config.epochs_unknown ? null : config.epochs;
}

/** Format a reference to a trial: `#12.3`, but `#12` for the first trial. */
export function reference(trial: Trial): string {
  return trial.index === 1 ? `#${trial.experiment}` : `#${trial.experiment}.${trial.index}`;
}

/** Return whether the user's code is run unchanged, so that its length and epochs are unknown. */
export function runsAsItIs(config: Config): boolean {
  return config.form === 'plain' || config.form === 'command';
}

/**
 * Format the progress of a trial: `#12  epoch 3/10  step 141  loss 0.412  accuracy 0.912`, with the values of the
 * report, else the trial's newest.
 */
export function progressLine(trial: Trial, config: Config, report: StoredReport | null = null): string {
  const { epoch, step } = report ?? trial;
  const values = report ? metricsText(report.metrics) : newestText(trial, config);
  // Code that is run unchanged has no epochs.
  const steps = config.form === 'command' && step ? [`step ${step}`] : [];
  const taken = runsAsItIs(config) ? steps : reachedOf(trial, config, epoch, step);
  const parts = [reference(trial), ...taken, values];
  return parts.filter(part => part).join('  ');
}

/** Return whether a trained model predicts rows, or is measured on them: nothing is trained. */
export function usesModel(config: Config): boolean {
  return /^(pred|eval)/.test(config.form);
}

/** Return epoch and step; what uses a model has rows, and always says of how many. */
function reachedOf(trial: Trial, config: Config, epoch: number, step: number, total = false): string[] {
  const rows = usesModel(config);
  const of = trial.total_steps && (total || rows) ? ` of ${trial.total_steps}` : '';
  return rows ? [`row ${step}${of}`] : [epochText(epoch, knownEpochs(config)), `step ${step}${of}`];
}

/** Steps a second, and the seconds until the last one. */
export interface Throughput {
  readonly perSecond: number;
  readonly left: number;
}

/** Format `epoch 3/10  step 141 of 470  about 2 min 05 s left`, or `row 64 of 96  12 rows/s  about 2.7 s left`. */
export function progressText(trial: Trial, config: Config, throughput: Throughput | null): string {
  const parts = reachedOf(trial, config, trial.epoch, trial.step, true);
  if (throughput) {
    const speed = `${number(Number(throughput.perSecond.toPrecision(3)))} rows/s`;
    parts.push(...(usesModel(config) ? [speed] : []), `about ${duration(throughput.left)} left`);
  }
  return parts.join('  ');
}

/** Format the location of a frame: `cell [4] line 3` or `helpers.py line 12`. */
export function whereText(frame: Frame): string {
  return frame.cell === null
    ? `${frame.file} line ${frame.line}`
    : `cell [${frame.cell}] line ${frame.cell_line ?? ''}`;
}

/** Format a failure: the error, its rank and step, and the user's frames by cell and line, outermost first. */
export function failureText(failure: Failure): string {
  const place = `rank ${failure.rank}` + (failure.step === null ? '' : `, step ${failure.step}`);
  const message = failure.message ? `: ${failure.message}` : '';
  const lines = [`${failure.type}${message}  (${place})`];
  for (const frame of failure.frames) {
    lines.push(`  ${whereText(frame)}, in ${frame.function}`);
    if (frame.text) {
      lines.push(`    ${frame.text}`);
    }
  }
  return lines.join('\n');
}

/** Format an estimated duration, rounded: `a minute`, `12 min`, `3 h`, `2 d`. */
export function approximately(seconds: number): string {
  const minutes = rounded(seconds / 60);
  if (minutes <= 1) {
    return 'a minute';
  }
  if (minutes < 90) {
    return `${minutes} min`;
  }
  return seconds < 36 * 3600 ? `${rounded(seconds / 3600)} h` : `${rounded(seconds / 86400)} d`;
}

/** Format the estimate of a wait: `in about 20 min (10 min to 40 min)`; "" without an estimate. */
export function estimateText(wait: Wait): string {
  if (wait.estimate === null) {
    return '';
  }
  const likely = approximately(wait.estimate);
  const bounds = [wait.earliest, wait.latest].filter(each => each !== null).map(each => approximately(each));
  const within = bounds.some(each => each !== likely) ? ` (${bounds.join(' to ')})` : '';
  return `in about ${likely}${within}`;
}

// Words of states that do not say what happens.
const WORDS: Readonly<Record<string, string>> = { releasing: 'saving a checkpoint' };

/** Return the word for an experiment's state: `running`, `waiting for slots`, `saving a checkpoint`. */
export function stateWord(overview: Overview): string {
  const state = stateOf(overview);
  const waits = state === 'queued' && overview.experiment.config.search !== null;
  return waits ? 'waiting for slots' : (WORDS[state] ?? state);
}

/** Return the word for a trial's state; `over` is true once its search has ended, which pauses no trial any more. */
export function trialWord(state: TrialState, over: boolean): string {
  return over && state === 'paused' ? 'stopped early' : (WORDS[state] ?? state);
}

/** Format the state, of a search with the number of its trials: `running \u00b7 16 of 24`. */
export function standingText(overview: Overview): string {
  const trials = ended(overview) ? '' : trialCount(overview);
  return trials ? `${stateWord(overview)} \u00b7 ${trials}` : stateWord(overview);
}

/**
 * Format the state with its reason: `queued: 2nd in queue; 2 of 2 slots in use; about 12 min`, `failed: ValueError`,
 * `preparing 2 slots: importing torch (12 s)`.
 */
export function stateText(overview: Overview): string {
  if (overview.starting && stateOf(overview) === 'starting') {
    return overview.starting;
  }
  const reasons = reasonsFor(stateOf(overview), overview);
  return reasons.length ? `${standingText(overview)}: ${reasons.join('; ')}` : standingText(overview);
}

function reasonsFor(state: string, overview: Overview): string[] {
  const { wait } = overview;
  if (wait && state === 'queued') {
    return [wait.reason, estimateText(wait)].filter(text => text);
  }
  if (overview.starting && state === 'running') {
    return [overview.starting];
  }
  const failure = state === 'failed' ? overview.trials.find(trial => trial.failure)?.failure : null;
  return failure ? [failure.type] : [];
}

/** Format the slots held or requested and, once known, the backend: `2 slots, horovod`. */
export function gangText(overview: Overview): string {
  const slots = slotsText(overview);
  const own = runsAsItIs(overview.experiment.config);
  const backend = own ? null : overview.attempts.filter(attempt => attempt.backend).at(-1)?.backend;
  return `${slots} slot${slots === '1' ? '' : 's'}${nodesText(overview)}` + (backend ? `, ${backend}` : '');
}

/** Format the number of slots, of an elastic training that holds slots as `2 of 1..4`. */
export function slotsText(overview: Overview): string {
  const { slots, least_slots } = overview.experiment.config;
  const least = least_slots ?? null; // views saved before there were elastic trainings have none
  if (least === null) {
    return String(slots);
  }
  const open = overview.attempts.filter(attempt => attempt.state !== 'ended').at(-1);
  const range = `${least}..${slots}`;
  return open ? `${slotsOf(open)} of ${range}` : range;
}

function slotsOf(attempt: Attempt): number {
  const shares = attempt.nodes.length
    ? attempt.nodes.map(node => node.slots)
    : attempt.placement.map(share => share.slots.length);
  return shares.reduce((sum, each) => sum + each, 0);
}

/** Return ` on n1 and n2` once an engine has chosen the nodes of the only trial, or the number of many nodes. */
function nodesText(overview: Overview): string {
  const nodes = overview.experiment.config.search ? [] : (overview.attempts.at(-1)?.nodes ?? []);
  const names = nodes.map(node => node.name);
  const last = names.at(-1);
  if (last === undefined) {
    return '';
  }
  if (names.length > FEW_NODES) {
    return ` on ${names.length} nodes`;
  }
  return ` on ${names.length > 1 ? `${names.slice(0, -1).join(', ')} and ${last}` : last}`;
}

/**
 * Return the seconds during which the experiment has held slots.
 *
 * Without attempts, or if the overview lacks the first ones, return the seconds since the submission.
 */
export function elapsed(overview: Overview, now: number): number {
  const { experiment, attempts } = overview;
  // An overview has only the newest attempts.
  const whole = new Set(attempts.filter(attempt => attempt.number === 1).map(attempt => attempt.trial));
  if (attempts.length === 0 || attempts.some(attempt => !whole.has(attempt.trial))) {
    return (experiment.ended_at ?? now) - experiment.created_at;
  }
  // Views saved before there were pools have no time at which slots were granted.
  const had = attempts.filter(attempt => attempt.state !== 'pending');
  const spans = had.map(attempt => [attempt.granted_at ?? attempt.created_at, attempt.ended_at ?? now] as const);
  let [seconds, until] = [0, -Infinity];
  for (const [begin, end] of spans.sort(([one, last], [other, end]) => one - other || last - end)) {
    seconds += Math.max(0, end - Math.max(begin, until)); // overlapping trials are counted once
    until = Math.max(until, end);
  }
  return seconds;
}

/** Format number and name: `#12 digits`. */
export function titleText(overview: Overview): string {
  return `#${overview.experiment.number} ${overview.experiment.name}`.trim();
}

/** Format the main line of an experiment: `#12 digits  running  2 slots, horovod  1 min 05 s`. */
export function headText(overview: Overview, now: number): string {
  return [titleText(overview), stateText(overview), gangText(overview), duration(elapsed(overview, now))].join('  ');
}

/** Return the reproducibility guarantee of the newest attempt that reported one; "" if none has. */
export function guaranteeText(overview: Overview): string {
  if (overview.experiment.config.form === 'plain') {
    return '';
  }
  const said = overview.attempts.map(attempt => attempt.guarantee).filter(text => Boolean(text));
  return said.at(-1) ?? '';
}

/**
 * Return lines that say how incomplete attempts ended, and where the next attempts resumed.
 *
 * The failure that ended the trial is left out, since it is shown in full elsewhere.
 */
export function attemptLines(overview: Overview): string[] {
  const failed = overview.trials.filter(trial => trial.state === 'failed');
  const isFinal = ({ trial, number }: Attempt): boolean =>
    failed.some(each => each.index === trial && each.attempt === number);
  return overview.attempts
    .flatMap(attempt => [begins(attempt), isFinal(attempt) ? null : ends(attempt)])
    .filter(line => line !== null);
}

/** Return the step of a checkpoint id `<step>-<attempt>`; 0 for null. */
export function checkpointStep(checkpoint: string | null): number {
  return checkpoint ? Number(checkpoint.split('-')[0]) : 0;
}

function begins(attempt: Attempt): string | null {
  const step = checkpointStep(attempt.resume_from);
  if (step) {
    return `attempt ${attempt.number} goes on from step ${step}`;
  }
  return attempt.number > 1 ? `attempt ${attempt.number} begins anew, from the start` : null;
}

function ends(attempt: Attempt): string | null {
  if (attempt.outcome === 'failed' && attempt.failure) {
    return `attempt ${attempt.number} failed: ${causeText(attempt.failure)}`;
  }
  if (attempt.outcome === 'lost') {
    const why = attempt.failure ? firstLine(attempt.failure.message) : 'its launcher was killed';
    return `attempt ${attempt.number} was lost: ${why}`;
  }
  const unlucky = attempt.outcome === 'timeout' || attempt.outcome === 'infeasible';
  return unlucky ? `attempt ${attempt.number} ended: ${attempt.outcome}` : null;
}

/** Format a failure in one line: `rank 1 was ended by SIGKILL`, `ValueError: no such file (cell [4] line 3)`. */
export function causeText(failure: Failure): string {
  const last = failure.frames.at(-1);
  if (last === undefined && failure.message.startsWith(`rank ${failure.rank} `)) {
    return failure.message;
  }
  return `${failure.type}: ${firstLine(failure.message)}` + (last === undefined ? '' : ` (${whereText(last)})`);
}

/** Format a message of the service as a sentence. */
export function sentence(message: string): string {
  const begun = message.charAt(0).toUpperCase() + message.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
