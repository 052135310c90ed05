/** The use of slots: curves by quantity and rank, and the same as a line of text. */

import type { Curve, SlotUse, Utilisation } from '../api/types';
import { size } from './text';
import { percent } from './times';

type Quantity = 'gpu' | 'cpu' | 'memory' | 'gpu_memory' | 'device_memory' | 'temperature' | 'power' | 'cpu_power';

interface Shown {
  readonly title: string; // of the plot, with its unit
  readonly scale: number; // factor from the value to the unit of the plot
  readonly text: (value: number) => string;
}

const GIGA = 1e-9;
const QUANTITIES: Record<Quantity, Shown> = {
  gpu: { title: 'GPU, %', scale: 100, text: value => `GPU ${percent(value)}` },
  cpu: { title: 'CPU, cores', scale: 1, text: value => `CPU ${value.toFixed(2)} cores` },
  memory: { title: 'memory, GB', scale: GIGA, text: value => `memory ${bytes(value)}` },
  gpu_memory: { title: 'GPU memory, GB', scale: GIGA, text: value => `GPU memory ${bytes(value)}` },
  device_memory: { title: 'GPU memory of all, GB', scale: GIGA, text: value => `of all ${bytes(value)}` },
  temperature: { title: 'temperature, °C', scale: 1, text: value => `${value.toFixed(0)} °C` },
  power: { title: 'GPU power, W', scale: 1, text: value => `GPU power ${value.toFixed(0)} W` },
  cpu_power: { title: 'CPU power, W', scale: 1, text: value => `CPU power ${value.toFixed(0)} W` }
};
const NAMES = Object.keys(QUANTITIES) as Quantity[];

/** Curves of one quantity, by rank. */
export interface UsePanel {
  readonly title: string;
  readonly curves: ReadonlyMap<number, Curve>;
}

/** Return a panel for each quantity that is known of any slot; unknown values interrupt its lines. */
export function panelsOfUse({ ranks }: Utilisation): UsePanel[] {
  return NAMES.map(name => {
    const known = ranks.filter(({ curve }) => curve.some(use => use[name] !== null));
    return {
      title: QUANTITIES[name].title,
      curves: new Map(known.map(({ rank, curve }) => [rank, curveOf(name, curve)]))
    };
  }).filter(({ curves }) => curves.size > 0);
}

/** Describe the newest samples, or the whole run once it has ended; '' if nothing is known. */
export function useText({ latest, whole }: Utilisation): string {
  const use = latest ?? whole;
  const known = NAMES.flatMap(name => {
    const value = use[name];
    return value === null ? [] : [QUANTITIES[name].text(value)];
  });
  return known.length === 0 ? '' : `${latest ? 'now' : 'on the average'}: ${known.join(', ')}`;
}

function curveOf(name: Quantity, uses: readonly SlotUse[]): Curve {
  const { title, scale } = QUANTITIES[name];
  const values = uses.map(use => scaled(use[name], scale));
  const at = uses.map(use => use.at);
  const zeros = at.map(() => 0);
  const nothing = { step: zeros, epoch: zeros, size: at.map(() => 1), broken: [] };
  return { ...nothing, kind: 'training', metric: title, at, mean: values, low: values, high: values, last: null };
}

function scaled(value: number | null, scale: number): number | null {
  return value === null ? null : value * scale;
}

function bytes(value: number): string {
  return size(Math.round(value));
}
