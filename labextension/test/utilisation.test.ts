/** Use of slots: the curves that a view draws, and their text. */

import type { RankUse, SlotUse, Utilisation } from '../src/api/types';
import { panelsOfUse, useText } from '../src/model/utilisation';

function use(fields: Partial<SlotUse> = {}): SlotUse {
  const unknown = { gpu: null, cpu: null, memory: null, gpu_memory: null, device_memory: null, device_total: null };
  return { at: 1, seconds: 10, ...unknown, temperature: null, power: null, cpu_power: null, ...fields };
}

function rank(number: number, ...curve: SlotUse[]): RankUse {
  return { rank: number, node: 'n', device: '', latest: null, whole: use(), curve };
}

function utilisation(fields: Partial<Utilisation> = {}): Utilisation {
  return { trial: 1, live: false, latest: null, whole: use(), ranks: [], ...fields };
}

test('each known quantity has a panel with a curve of each rank, in its unit', () => {
  const ranks = [rank(0, use({ gpu: 0.5, memory: 2e9 }), use({ at: 11 })), rank(1, use({ memory: 1e9 }))];
  const panels = panelsOfUse(utilisation({ ranks }));
  expect(panels.map(panel => [panel.title, [...panel.curves.keys()]])).toEqual([
    ['GPU, %', [0]],
    ['memory, GB', [0, 1]]
  ]);
  expect(panels[0]?.curves.get(0)).toMatchObject({ at: [1, 11], mean: [50, null] });
  expect(panels[1]?.curves.get(1)?.mean).toEqual([1]);
  expect(panelsOfUse(utilisation())).toEqual([]);
});

test('the text has what is known now, or of the whole run once it has ended', () => {
  const latest = use({ gpu: 0.31, cpu: 1, memory: 4.1e9, temperature: 58, power: 182.4 });
  expect(useText(utilisation({ latest }))).toBe('now: GPU 31 %, CPU 1.00 cores, memory 4.1 GB, 58 °C, GPU power 182 W');
  expect(useText(utilisation({ whole: use({ cpu: 0.5 }) }))).toBe('on the average: CPU 0.50 cores');
  expect(useText(utilisation())).toBe('');
});
