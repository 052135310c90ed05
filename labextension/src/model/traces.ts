/** The operations that a trace has recorded, as rows of a table. */

import type { Attempt, Overview } from '../api/types';

export const OPERATIONS = 'trace-operations'; // artifact with the operations of all recorded ranks
export const OPERATION_HEAD = ['operation', 'calls', 'CPU ms', 'device ms'];

/** What a rank has recorded, as `kernel_backend/model/launch/trace.py` writes it into the artifact. */
export interface RankTrace {
  readonly rank: number;
  readonly first: number; // step
  readonly last: number;
  readonly operations: readonly {
    readonly name: string;
    readonly calls: number;
    readonly cpu_ms: number; // in the operation alone
    readonly device_ms: number;
  }[];
}

/** Return a row for each operation of the first recorded rank, over all recorded steps. */
export function operationRows(traces: readonly RankTrace[]): string[][] {
  return (traces[0]?.operations ?? []).map(each => [
    each.name,
    each.calls.toLocaleString('en'),
    each.cpu_ms.toFixed(2),
    each.device_ms.toFixed(2)
  ]);
}

/** Return which steps and ranks the table is about, and where the whole traces are; "" without a trace. */
export function traceText(traces: readonly RankTrace[]): string {
  const [first] = traces;
  if (first === undefined) {
    return '';
  }
  const files = traces.map(each => `trace-rank-${each.rank}.json`).join(', ');
  const about = `steps ${first.first} to ${first.last} of rank ${first.rank}; milliseconds of the operation alone`;
  return `${about}. Of each rank: ${files}, below Artifacts; open it in ui.perfetto.dev`;
}

/** Whether a trace of the trial is being recorded. */
export function isRecording(overview: Overview, trial: number): boolean {
  const attempt: Attempt | undefined = overview.attempts.filter(each => each.trial === trial).at(-1);
  return attempt !== undefined && attempt.ended_at === null && attempt.trace !== null;
}

/** Whether a trace of the trial can be recorded now: it runs, and has steps of its own. */
export function canRecord(overview: Overview, trial: number): boolean {
  const state = overview.trials.find(each => each.index === trial)?.state;
  return state === 'running' && overview.experiment.config.form !== 'command' && !isRecording(overview, trial);
}
