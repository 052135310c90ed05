/** Importance of each hyperparameter as a bar, the largest first. */

import type { Importance } from '../../api/types';
import { num } from '../../model/curves';
import { type Shape, text } from './shapes';

const SURE = 60; // trials; shares from fewer change with each new result
const [ROW, LEFT, RIGHT, CHARACTER] = [26, 12, 52, 7.6];

export function bars(importance: Importance, width: number): { shapes: Shape[]; height: number } {
  const named = largestFirst(importance);
  const room = Math.min(width * 0.4, Math.max(...named.map(([name]) => name.length * CHARACTER), 0) + LEFT);
  const most = Math.max(...named.map(([, share]) => share), 1e-9);
  const shapes = named.flatMap(([name, share], index): Shape[] => {
    const y = index * ROW + 6;
    const length = Math.max(1, (share / most) * (width - room - RIGHT));
    return [
      text(room - 8, y + 12, name, { 'text-anchor': 'end', class: 'dl-axis-name' }),
      { tag: 'rect', props: { x: room, y, width: length, height: ROW - 10, rx: 3, class: 'dl-share' } },
      text(room + length + 6, y + 12, percent(share), { class: 'dl-tick' })
    ];
  });
  return { shapes, height: named.length * ROW + 6 };
}

/** Describe the bars for screen readers. */
export function barsText(importance: Importance): string {
  return largestFirst(importance)
    .map(([name, share]) => `${name} ${percent(share)}`)
    .join(', ');
}

/** Say what the shares are of, and whether from few trials; or why there are none. */
export function importanceNote({ unit, trials, missing }: Importance, unitName: string): string {
  const of = `of the best tenth of ${trials} trials from the rest, at ${unitName} ${unit ?? ''} (PED-ANOVA)`;
  const doubt = trials < SURE ? ' From few trials: it may change with the next ones.' : '';
  return missing || `What tells ${of}.${doubt}`;
}

function largestFirst({ shares }: Importance): [string, number][] {
  const named = Object.entries(shares).map(([name, share]): [string, number] => [name, num(share)]);
  return named.sort(([, one], [, other]) => other - one);
}

function percent(share: number): string {
  return share > 0 && share < 0.005 ? '<1 %' : `${Math.round(share * 100)} %`;
}
