/** Texts of an item of the panel's list. */

import type { Trial } from '../api/types';
import { num } from '../model/curves';
import { lossFirst, metricsText, newestOf } from '../model/text';

/** Metric as shown in an item; `broken` if its value is not finite. */
export interface MetricText {
  readonly name: string;
  readonly text: string;
  readonly broken: boolean;
}

/** Return the parts of the text that `newestText` shows for a trial. */
export function toldBy(trial: Trial): MetricText[] {
  const [kind, metrics] = newestOf(trial);
  return lossFirst(metrics).map(([name, value], index) => ({
    name,
    text: (index === 0 && kind === 'training' ? 'training ' : '') + metricsText({ [name]: value }),
    broken: !Number.isFinite(num(value))
  }));
}
