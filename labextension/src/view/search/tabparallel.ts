/** Tab with parallel coordinates; brushing an axis also filters the table of trials. */

import type { TrialRow } from '../../api/types';
import { button, h, show } from '../dom';
import { Chart } from './chart';
import { axesOf, type Axis, type Brushes, geometry, parallel, within } from './parallel';
import { ScaleKey } from './scalekey';
import type { TabView } from './tabview';

const HEIGHT = 300;
const LEAST = 0.02; // fraction of an axis; a shorter brush is a click

export class ParallelTab {
  private readonly _clear = button('choose all', () => this._brush(new Map()), 'dl-quiet');
  private readonly _chart: Chart;
  private readonly _key = new ScaleKey();
  private _axes: Axis[] = [];
  private _brushes: Brushes = new Map();
  private _from: { axis: Axis; share: number } | null = null; // start of the brush
  readonly root: HTMLElement;

  /** `chosen` is called when the selection of trials changes. */
  constructor(
    picked: (trial: number) => void,
    private readonly _chosen: () => void
  ) {
    this._chart = new Chart('Parallel coordinates', HEIGHT, picked, this._clear);
    const chart = h('div', { class: 'dl-charts dl-one-chart' }, this._chart.root);
    this.root = h('div', {}, this._key.root, chart);
    const { svg } = this._chart;
    svg.addEventListener('pointerdown', event => this._begin(event));
    svg.addEventListener('pointermove', event => this._move(event));
    svg.addEventListener('pointerup', event => this._end(event));
    svg.addEventListener('pointercancel', () => (this._from = null));
  }

  /** Selected parts of the axes; another object after each change. */
  get brushes(): Brushes {
    return this._brushes;
  }

  /** Return whether a trial is selected. */
  lets(row: TrialRow): boolean {
    return this._brushes.size === 0 || within(row, this._axes, this._brushes);
  }

  draw({ status, look, trial }: TabView): void {
    const space = look.overview?.experiment.space ?? { parameters: [] };
    this._axes = axesOf(status, space);
    const chosen = status.trials.filter(row => this.lets(row)).length;
    show(this._clear, this._brushes.size > 0);
    this._key.update(status.trials, status.metric);
    this._chart.update(
      (width, height) => parallel(status, this._axes, this._brushes, trial, width, height),
      `${chosen} of ${status.trials.length} trials as lines over ${this._axes.map(axis => axis.name).join(', ')}`,
      this._brushes.size ? '' : 'Drag along an axis to choose trials; the table follows.'
    );
  }

  dispose(): void {
    this._chart.dispose();
  }

  private _begin(event: PointerEvent): void {
    const index = event.target instanceof Element ? event.target.getAttribute('data-axis') : null;
    const axis = index === null ? undefined : this._axes[Number(index)];
    if (axis) {
      this._chart.svg.setPointerCapture(event.pointerId);
      this._from = { axis, share: this._share(event) };
      event.preventDefault();
    }
  }

  private _move(event: PointerEvent): void {
    if (this._from) {
      const { axis, share } = this._from;
      const at = this._share(event);
      this._brush(new Map(this._brushes).set(axis.name, [Math.min(share, at), Math.max(share, at)]));
    }
  }

  private _end(event: PointerEvent): void {
    if (this._from) {
      const { axis, share } = this._from;
      this._from = null;
      if (Math.abs(share - this._share(event)) < LEAST) {
        const fewer = new Map(this._brushes);
        fewer.delete(axis.name);
        this._brush(fewer);
      }
    }
  }

  private _share(event: PointerEvent): number {
    const box = this._chart.svg.getBoundingClientRect();
    const [width, height] = [box.width, box.height];
    return geometry(this._axes.length, width, height).share(event.clientY - box.top);
  }

  private _brush(brushes: Brushes): void {
    this._brushes = brushes;
    this._chosen();
  }
}
