/** Rungs of a search: all results of each rung, and which trials were promoted. */

import type { BracketStatus, Metric, SearchStatus } from '../../api/types';
import { number } from '../../model/text';
import { plane } from './plane';
import { metricScale, type Scale } from './scale';
import { pathOf, type Shape, text } from './shapes';

const HEAD = 30; // pixels for the text above a rung
const SPREAD = 0.28; // fraction of a rung's width over which similar results are spread

/** Draw one bracket, its lowest rung on the left; `chosen` is the selected trial. */
export function ladder(
  status: SearchStatus,
  bracket: BracketStatus,
  width: number,
  height: number,
  chosen: number | null
): Shape[] {
  const { rungs } = bracket;
  const across = rungScale(status, bracket);
  const values = rungs.flatMap(rung => rung.entries.map(([, value]) => value));
  const up = metricScale(values, status.metric);
  const { x, y, axes } = plane(width, height - HEAD, across, up, '');
  const share = 1 / Math.max(1, rungs.length);
  const reached = new Map<number, number>(); // the highest rung of each trial
  rungs.forEach((rung, index) => rung.entries.forEach(([trial]) => reached.set(trial, index)));
  const found: Shape[] = axes.map(shifted);
  const way: ([number, number] | null)[] = [];
  rungs.forEach((rung, index) => {
    const middle = (index + 0.5) * share;
    found.push(...words(rung, x(middle)));
    const cut = rung.cut === null ? null : up.place(rung.cut);
    if (cut !== null) {
      const [from, to] = [x(middle - share * 0.42), x(middle + share * 0.42)];
      const props = { x1: from, x2: to, y1: y(cut) + HEAD, y2: y(cut) + HEAD, class: 'dl-cut' };
      found.push({ tag: 'line', props, title: `the best 1/${status.search.eta} begin at ${number(rung.cut ?? 0)}` });
    }
    for (const [trial, value] of [...rung.entries].reverse()) {
      const at = up.place(value) ?? 0;
      const place = [x(middle + (jitter(trial) - 0.5) * 2 * SPREAD * share), y(at) + HEAD] as const;
      if (trial === chosen) {
        way.push([place[0], place[1]]);
      }
      found.push({
        tag: 'circle',
        props: {
          cx: place[0],
          cy: place[1],
          r: trial === chosen ? 5 : 3.2,
          class: `dl-dot ${(reached.get(trial) ?? 0) > index ? 'dl-went-on' : 'dl-stayed'} ${trial === chosen ? 'dl-chosen' : ''}`,
          'data-trial': trial
        },
        title: `${status.number}.${trial}  ${status.metric.name} ${number(value)} at ${status.unit} ${rung.unit}`
      });
    }
  });
  const line: Shape = { tag: 'path', props: { d: pathOf(way), class: 'dl-way' } };
  return way.length > 1 ? [...found, line] : found;
}

/** Describe a bracket for screen readers. */
export function ladderText(bracket: BracketStatus, unit: string, metric: Metric): string {
  const rungs = bracket.rungs.map(rung => {
    const best = rung.best === null ? '' : `, best ${metric.name} ${number(rung.best)}`;
    return `${unit} ${rung.unit}: ${resultsText(rung.results)}, ${rung.went_on} went on${best}`;
  });
  return rungs.join('; ');
}

function rungScale({ unit }: SearchStatus, { rungs }: BracketStatus): Scale {
  const ticks = rungs.map((rung, index) => ({ at: (index + 0.5) / rungs.length, text: `${unit} ${rung.unit}` }));
  return { place: () => null, ticks, fields: rungs.length };
}

function words({ results, went_on }: { results: number; went_on: number }, x: number): Shape[] {
  const props = { 'text-anchor': 'middle', class: 'dl-tick' };
  const beyond = went_on > 0 ? `${went_on} went on` : '';
  return [text(x, 12, results ? resultsText(results) : 'none yet', props), text(x, 25, beyond, props)];
}

function resultsText(count: number): string {
  return `${count} result${count === 1 ? '' : 's'}`;
}

/** Return a number from 0 to 1 that is constant for a trial, to separate overlapping points. */
function jitter(trial: number): number {
  return (trial * 0.618033988749895) % 1;
}

function shifted(shape: Shape): Shape {
  const moved = Object.entries(shape.props).map(([name, value]) => [
    name,
    ['y', 'y1', 'y2'].includes(name) ? Number(value) + HEAD : value
  ]);
  return { ...shape, props: Object.fromEntries(moved) as Shape['props'] };
}
