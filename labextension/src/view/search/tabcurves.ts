/** Tab with the learning curves of many trials. */

import { h } from '../dom';
import { Chart } from './chart';
import { manyCurves } from './lines';
import { notLoaded } from './loadingproblem';
import type { TabView } from './tabview';

const HEIGHT = 320;

export class CurvesTab {
  private readonly _chart: Chart;
  readonly root: HTMLElement;

  constructor(picked: (trial: number) => void) {
    this._chart = new Chart('Learning curves', HEIGHT, picked);
    this.root = h('div', { class: 'dl-charts dl-one-chart' }, this._chart.root);
  }

  draw({ status, curves, trial, failed }: TabView): void {
    const lines = curves?.lines.length ?? 0;
    const note =
      curves === null
        ? notLoaded('curves', failed)
        : lines < curves.of
          ? `${lines} of ${curves.of} trials: the best, and some of the others`
          : '';
    this._chart.update(
      (width, height) => (curves ? manyCurves(curves, status, trial, width, height) : []),
      `${status.metric.name} of ${lines} trials over their ${status.unit}s`,
      note
    );
  }

  dispose(): void {
    this._chart.dispose();
  }
}
