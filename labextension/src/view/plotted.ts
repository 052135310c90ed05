/** Select the plots for one or several experiments: their data, and how it is drawn. */

import type { Curve, Metric } from '../api/types';
import { modeOf } from '../model/best';
import type { Look } from '../service/watch';
import { allPositive, type Line, linesOf, panelsOf } from './lines';
import type { Picture } from './plotlook';
import type { ViewSettings } from './settings';

const COLOURS = ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight'];
const SHADES = ['', ' deep', ' pale']; // as in `cssColour`
const ROWS = { training: 'so far', validation: 'all rows' }; // labels of values over rows
const NOT_POSITIVE = 'no log axis here: there are values of zero or less';

/** Plot of one metric, created by `make` when it is drawn; `from` are its inputs, to recognise unchanged plots. */
export interface Plotted {
  readonly metric: string;
  readonly from: readonly unknown[];
  readonly make: () => { picture: Picture; note: string };
}

/** Return one plot per metric of an experiment, with training and validation. */
export function alone(look: Look, settings: ViewSettings): Plotted[] {
  const origin = beginning(look);
  return panelsOf(look.curves).map(({ metric, curves }) => ({
    metric,
    from: [settings, origin, ...curves],
    make: () =>
      plot(curves, settings, curve => {
        const label = settings.axis === 'row' ? ROWS[curve.kind] : curve.kind;
        const line = { label, colour: curve.kind, mode: curveMode(curve, look) };
        return linesOf(curve, line, settings, origin);
      })
  }));
}

/**
 * Return one plot per metric with the lines of all experiments, the most common metrics first.
 *
 * If only validation is selected, experiments that have not validated a metric show its training values.
 */
export function overlaid(looks: readonly Look[], settings: ViewSettings, validationOnly: boolean): Plotted[] {
  const owners = new Map(looks.flatMap((look, index) => look.curves.map(curve => [curve, { look, index }])));
  const lines = (curve: Curve): Line[] => {
    const { look, index } = owners.get(curve) ?? { look: null, index: 0 };
    const dashed = curve.kind === 'training';
    const label = `#${look?.number ?? 0}` + (validationOnly && !dashed ? '' : ` ${curve.kind}`);
    const origin = look ? beginning(look) : 0;
    const mode = look ? curveMode(curve, look) : undefined;
    return linesOf(curve, { label, colour: colourOf(index), dashed, mode }, settings, origin);
  };
  return panelsOf([...owners.keys()])
    .map(({ metric, curves }) => {
      const owned = looks.map(look => curves.filter(curve => owners.get(curve)?.look === look));
      return { metric, shared: owned.map(own => (validationOnly ? validationOf(own) : own)) };
    })
    .sort((one, other) => having(other.shared) - having(one.shared))
    .map(({ metric, shared }) => {
      const curves = shared.flat();
      return { metric, from: [settings, validationOnly, ...curves], make: () => plot(curves, settings, lines) };
    });
}

function curveMode({ kind, metric }: Curve, { overview }: Look): Metric['mode'] | undefined {
  return kind === 'validation' ? modeOf(metric, overview?.experiment.config.metric) : undefined;
}

/** Return the validation curves of a metric; all curves if there are none. */
function validationOf(curves: readonly Curve[]): readonly Curve[] {
  const validated = curves.filter(curve => curve.kind === 'validation');
  return validated.length ? validated : curves;
}

/** Return the number of experiments that have a curve. */
function having(shared: readonly (readonly Curve[])[]): number {
  return shared.filter(curves => curves.length > 0).length;
}

function plot(
  curves: readonly Curve[],
  settings: ViewSettings,
  lines: (curve: Curve) => Line[]
): { picture: Picture; note: string } {
  const log = settings.logAxis && allPositive(curves);
  const note = settings.logAxis && !log ? NOT_POSITIVE : '';
  return { picture: { lines: curves.flatMap(lines), axis: settings.axis, log }, note };
}

/** Return the colour of one of several experiments. */
export function colourOf(index: number): string {
  const shade = SHADES[Math.floor(index / COLOURS.length) % SHADES.length] ?? '';
  return `${COLOURS[index % COLOURS.length]}${shade}`;
}

/** Return time 0 of a trial's curves: the start of its first attempt if known, else its first report. */
export function beginning({ overview, curves, trial }: Pick<Look, 'overview' | 'curves' | 'trial'>): number {
  const first = overview?.attempts.find(attempt => attempt.trial === trial && attempt.number === 1);
  const reported = curves.flatMap(curve => curve.at.slice(0, 1));
  return first?.created_at ?? (reported.length ? Math.min(...reported) : 0);
}

/** Return the newest step of the training curves, or of the trial if there are none. */
export function newestStep({ overview, curves, trial }: Pick<Look, 'overview' | 'curves' | 'trial'>): number {
  const training = curves.filter(curve => curve.kind === 'training').map(curve => curve.step.at(-1) ?? 0);
  return training.length ? Math.max(...training) : (overview?.trials.find(each => each.index === trial)?.step ?? 0);
}
