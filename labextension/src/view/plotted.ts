/** Which plots there are, for one experiment and for several: what each is made of, and how it is made. */

import type { Curve, Overview } from '../model/words';
import type { Look } from '../service/watch';
import { allPositive, type Line, lineOf, panelsOf } from './lines';
import type { Picture } from './plotlook';
import type { ViewSettings } from './settings';

const COLOURS = ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight'];
const NOT_POSITIVE = 'no log axis here: there are values of zero or less';

/** One metric as it shall be drawn; `from` is what it is made of, so that what has not changed is not made again. */
export interface Plotted {
  readonly metric: string;
  readonly from: readonly unknown[];
  readonly make: () => { picture: Picture; note: string };
}

/** A plot a metric of one experiment: training and validation. */
export function alone(look: Look, settings: ViewSettings): Plotted[] {
  const origin = beginning(look.overview, look.curves);
  return panelsOf(look.curves).map(({ metric, curves }) => ({
    metric,
    from: [settings, origin, ...curves],
    make: () =>
      plot(curves, settings, curve => lineOf(curve, { label: curve.kind, colour: curve.kind }, settings, origin))
  }));
}

/** A plot a metric with the lines of all experiments; a metric that none has validated keeps its training. */
export function overlaid(looks: readonly Look[], settings: ViewSettings, validationOnly: boolean): Plotted[] {
  const owners = new Map(looks.flatMap((look, index) => look.curves.map(curve => [curve, { look, index }])));
  return panelsOf([...owners.keys()]).map(panel => {
    const validated = panel.curves.filter(curve => curve.kind === 'validation');
    const one = validationOnly && validated.length > 0;
    const curves = looks.flatMap(look => (one ? validated : panel.curves).filter(each => look.curves.includes(each)));
    const line = (curve: Curve): Line => {
      const { look, index } = owners.get(curve) ?? { look: null, index: 0 };
      const label = `#${look?.number ?? 0}` + (one ? '' : ` ${curve.kind}`);
      const dashed = !one && curve.kind === 'training';
      const origin = look ? beginning(look.overview, look.curves) : 0;
      return lineOf(curve, { label, colour: colourOf(index), dashed }, settings, origin);
    };
    return { metric: panel.metric, from: [settings, one, ...curves], make: () => plot(curves, settings, line) };
  });
}

function plot(
  curves: readonly Curve[],
  settings: ViewSettings,
  line: (curve: Curve) => Line
): { picture: Picture; note: string } {
  const log = settings.logAxis && allPositive(curves);
  const note = settings.logAxis && !log ? NOT_POSITIVE : '';
  return { picture: { lines: curves.map(line), axis: settings.axis, log }, note };
}

/** The colour of one of several experiments. */
export function colourOf(index: number): string {
  return COLOURS[index % COLOURS.length] ?? 'one';
}

/** When an experiment's time begins: with its first attempt, if that is known, else with its first report. */
export function beginning(overview: Overview | null, curves: readonly Curve[]): number {
  const first = overview?.attempts.find(attempt => attempt.number === 1);
  const reported = curves.flatMap(curve => curve.at.slice(0, 1));
  return first?.created_at ?? (reported.length ? Math.min(...reported) : 0);
}

/** The newest step that the curves of the training (or, where there are none, the experiment) have come to. */
export function newestStep(overview: Overview | null, curves: readonly Curve[]): number {
  const training = curves.filter(curve => curve.kind === 'training').map(curve => curve.step.at(-1) ?? 0);
  return training.length ? Math.max(...training) : (overview?.trials[0]?.step ?? 0);
}
