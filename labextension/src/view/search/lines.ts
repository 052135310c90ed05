/** Values over time: the best so far, and the learning curves of many trials. */

import type { SearchCurves, SearchStatus } from '../../api/types';
import { number, trialWord } from '../../model/text';
import { SECONDS, secondsText } from '../ticks';
import { plane } from './plane';
import { linear, metricScale, type Scale } from './scale';
import { pathOf, type Shape } from './shapes';

export type Over = 'time' | 'units';

/** Draw the incumbent (the best value so far) over the time since the submission, or over the amount of training. */
export function incumbent(status: SearchStatus, over: Over, width: number, height: number): Shape[] {
  const { incumbent: steps, metric, unit } = status;
  const end = over === 'time' ? status.elapsed : status.trained;
  const along = steps.map(step => (over === 'time' ? step.at : step.units));
  const across = over === 'time' ? timeScale(end) : linear(0, Math.max(1, end));
  const up = metricScale(
    steps.map(step => step.value),
    metric
  );
  const title = over === 'time' ? 'time since the submission' : `${unit}s trained, of all trials`;
  const { x, y, axes } = plane(width, height, across, up, title);
  const points: [number, number][] = [];
  const dots: Shape[] = [];
  steps.forEach((step, index) => {
    const at = x(across.place(along[index]) ?? 0);
    const value = y(up.place(step.value) ?? 0);
    const before = points.at(-1);
    points.push(...(before ? [[at, before[1]] as [number, number]] : []), [at, value]);
    dots.push({
      tag: 'circle',
      props: { cx: at, cy: value, r: 3.2, class: 'dl-dot dl-went-on', 'data-trial': step.trial },
      title: `${status.number}.${step.trial}  ${metric.name} ${number(step.value)} at ${unit} ${step.unit}`
    });
  });
  const last = points.at(-1);
  const path = last ? pathOf([...points, [x(1), last[1]]]) : '';
  return [...axes, { tag: 'path', props: { d: path, class: 'dl-best-line' } }, ...dots];
}

/** Draw the learning curves of many trials: inactive ones are pale, and the best are on top. */
export function manyCurves(
  curves: SearchCurves,
  status: Pick<SearchStatus, 'number' | 'over'>,
  chosen: number | null,
  width: number,
  height: number
): Shape[] {
  const most = Math.max(1, ...curves.lines.flatMap(line => line.unit));
  const across = linear(0, most);
  const up = metricScale(
    curves.lines.flatMap(line => line.value),
    curves.metric
  );
  const { x, y, axes } = plane(width, height, across, up, curves.unit);
  const lines = curves.lines.map((line, index): Shape => {
    const points = line.unit.map((unit, place): [number, number] | null => {
      const at = up.place(line.value[place] ?? undefined);
      return at === null ? null : [x(across.place(unit) ?? 0), y(at)];
    });
    const look = line.trial === chosen ? 'dl-chosen' : (LOOKS[line.state] ?? 'dl-resting');
    return {
      tag: 'path',
      props: {
        d: dotted(points),
        class: `dl-curve ${index < FRONT ? 'dl-front' : ''} ${look}`,
        'data-trial': line.trial
      },
      title: `${status.number}.${line.trial}  ${trialWord(line.state, status.over)}`
    };
  });
  const front = lines.filter((_, index) => curves.lines[index]?.trial === chosen);
  return [...axes, ...lines.reverse(), ...front];
}

const FRONT = 5; // number of best trials that are drawn strongly
const LOOKS: Partial<Record<string, string>> = {
  running: 'dl-lively',
  starting: 'dl-lively',
  completed: 'dl-done'
};

/** Return a path through points; a single point becomes a short, visible stroke. */
function dotted(points: readonly ([number, number] | null)[]): string {
  const [only, ...others] = points;
  return only && others.length === 0 ? `M${only[0] - 3} ${only[1]}h6` : pathOf(points);
}

function timeScale(seconds: number): Scale {
  const end = Math.max(1, seconds);
  const step = SECONDS.find(each => end / each <= 6) ?? end;
  const count = Math.floor(end / step) + 1;
  return {
    place: value => (typeof value === 'number' ? Math.min(1, Math.max(0, value / end)) : null),
    ticks: Array.from({ length: count }, (_, index) => ({
      at: (index * step) / end,
      text: secondsText(index * step, step)
    })),
    fields: count
  };
}
