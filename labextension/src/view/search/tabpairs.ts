/** Tab with two columns against each other: every trial, and the best per grid cell. */

import { h, setLines } from '../dom';
import { Chart } from './chart';
import { heat, scatter } from './pairs';
import { axesOf, type Axis } from './parallel';
import { ScaleKey } from './scalekey';
import type { TabView } from './tabview';

const HEIGHT = 300;

export class PairsTab {
  private readonly _across = h('select', { 'aria-label': 'x axis', onchange: () => this._again() });
  private readonly _up = h('select', { 'aria-label': 'y axis', onchange: () => this._again() });
  private readonly _scatter: Chart;
  private readonly _heat: Chart;
  private readonly _key = new ScaleKey();
  private _seen: TabView | null = null;
  private _names = '';
  readonly root: HTMLElement;

  constructor(picked: (trial: number) => void) {
    const choose = h(
      'div',
      { class: 'dl-toolbar' },
      h('label', {}, 'x axis', this._across),
      h('label', {}, 'y axis', this._up)
    );
    this._scatter = new Chart('Trials', HEIGHT, picked);
    this._heat = new Chart('Best of each field', HEIGHT, picked);
    const charts = h('div', { class: 'dl-charts' }, this._scatter.root, this._heat.root);
    this.root = h('div', {}, choose, this._key.root, charts);
  }

  draw(seen: TabView): void {
    this._seen = seen;
    const { status, look, trial } = seen;
    const axes = axesOf(status, look.overview?.experiment.space ?? { parameters: [] });
    this._offer(axes);
    const [across, up] = [this._chosen(axes, this._across), this._chosen(axes, this._up)];
    if (across && up) {
      const words = `${up.name} over ${across.name} of ${status.trials.length} trials`;
      this._scatter.update((width, height) => scatter(status, across, up, trial, width, height), words);
      this._key.update(status.trials, status.metric);
      this._heat.update((width, height) => heat(status, across, up, width, height), `the best of each field: ${words}`);
    }
  }

  dispose(): void {
    this._scatter.dispose();
    this._heat.dispose();
  }

  /** Offer all columns for selection; the first two hyperparameters are selected at first. */
  private _offer(axes: readonly Axis[]): void {
    const names = axes.map(axis => axis.name);
    if (names.join('\n') === this._names) {
      return;
    }
    this._names = names.join('\n');
    const before = [this._across.value, this._up.value];
    [this._across, this._up].forEach((select, index) => {
      setLines(select, names, () => h('option'));
      const kept = before[index];
      select.value = kept && names.includes(kept) ? kept : (names[Math.min(index, names.length - 1)] ?? '');
    });
  }

  private _chosen(axes: readonly Axis[], { value }: HTMLSelectElement): Axis | undefined {
    return axes.find(axis => axis.name === value);
  }

  private _again(): void {
    if (this._seen) {
      this.draw(this._seen);
    }
  }
}
