/** What can be done with a training that has ended, as in `kernel_backend/text/next_steps.py`. */

import type { CheckpointInfo, Metric, Overview } from '../api/types';
import { ranked } from './best';
import { num } from './curves';
import { ended, frontOf, stateOf } from './overview';
import { knownEpochs } from './text';

// Methods of a job that give what is no model.
const RESULTS: Partial<Record<string, string>> = { plain: 'result', prediction: 'predictions' };

/** Return a line of Python that gets the result of an experiment that has ended; "" if there is none to get. */
export function loadCode(overview: Overview): string {
  const { number, config } = overview.experiment;
  const [state, result] = [stateOf(overview), RESULTS[config.form]];
  const trained = !/^(comm|eval)/.test(config.form) && (frontOf(overview)?.step ?? 0) > 0;
  const there = result ? state === 'completed' : trained && (state === 'completed' || state === 'stopped');
  return there && ended(overview) ? `import daylight; daylight.job(${number}).${result ?? 'load'}()` : '';
}

/** Return unit and number of twice the length of a training whose model can be loaded; null if that is unknown. */
export function longer(overview: Overview): ['epochs' | 'steps', number] | null {
  const { config } = overview.experiment;
  if (!loadCode(overview).endsWith('load()') || knownEpochs(config) === null) {
    return null;
  }
  return config.steps === null ? ['epochs', 2 * config.epochs] : ['steps', 2 * config.steps];
}

/** Return the best checkpoint by a metric; ties go to the lower trial and the earlier step. */
export function bestCheckpoint(found: readonly CheckpointInfo[], metric: Metric): CheckpointInfo | undefined {
  const ordered = [...found].sort((one, other) => one.trial - other.trial || one.step - other.step);
  return ranked(ordered, metric, ({ metrics }) => {
    const value = num(metrics[metric.name] ?? NaN);
    return [0, Number.isFinite(value) ? value : null];
  })[0];
}
