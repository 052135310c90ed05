/** Tab with the importance of hyperparameters. */

import { h } from '../dom';
import { bars, barsText, importanceNote } from './bars';
import { Chart } from './chart';
import { notLoaded } from './loadingproblem';
import type { TabView } from './tabview';

export class ImportanceTab {
  private readonly _chart: Chart;
  readonly root: HTMLElement;

  constructor(picked: (trial: number) => void) {
    this._chart = new Chart('What makes the difference', 1, picked);
    this.root = h('div', { class: 'dl-charts dl-one-chart' }, this._chart.root);
  }

  draw({ status, importance, failed }: TabView): void {
    if (importance === null) {
      this._chart.update(() => [], '', notLoaded('importance', failed));
      return;
    }
    const height = bars(importance, 100).height;
    this._chart.update(
      width => bars(importance, width).shapes,
      barsText(importance),
      importanceNote(importance, status.unit),
      height
    );
  }

  dispose(): void {
    this._chart.dispose();
  }
}
