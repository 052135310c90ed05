/** Key to the colours of trials: from the worst through the median to the best value of the metric. */

import type { Metric, TrialRow } from '../../api/types';
import { bestRows } from '../../model/best';
import { number } from '../../model/text';
import { h, setChildren, show } from '../dom';
import { shade } from './scale';

const STOPS = 4; // of each half, whose colours change unevenly

export class ScaleKey {
  readonly root = h('p', { class: 'dl-scale dl-dim', hidden: true });

  update(rows: readonly TrialRow[], metric: Metric): void {
    const values = scaleValues(rows, metric);
    show(this.root, values !== null);
    if (values !== null) {
      const [worst, median, best] = values;
      const word = (text: string): HTMLElement => h('span', {}, text);
      setChildren(this.root, [
        word(`${metric.name}: worst ${worst}`),
        half(0),
        word(`median ${median}`),
        half(0.5),
        word(`best ${best}`)
      ]);
    }
  }
}

/** Return the worst, the median and the best value, which have the ranks 0, 1/2 and 1; null of fewer than two. */
export function scaleValues(rows: readonly TrialRow[], metric: Metric): [string, string, string] | null {
  const values = bestRows(rows, metric).flatMap(({ best }) => (best === null ? [] : [best]));
  const at = (rank: number): string => number(values[Math.round((1 - rank) * (values.length - 1))] ?? NaN);
  return values.length < 2 ? null : [at(0), at(0.5), at(1)];
}

/** Return a bar with the colours of half of the ranks, from `rank` on. */
function half(rank: number): HTMLElement {
  const colours = Array.from({ length: STOPS + 1 }, (_, stop) => shade(rank + stop / (2 * STOPS)));
  const bar = h('span', { class: 'dl-scale-bar', 'aria-hidden': 'true' });
  bar.style.background = `linear-gradient(to right, ${colours.join(', ')})`;
  return bar;
}
