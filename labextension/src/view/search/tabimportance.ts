/** Tab with the importance of hyperparameters. */

import { h } from '../dom';
import { bars, barsText } from './bars';
import { Chart } from './chart';
import type { TabView } from './tabview';

export class ImportanceTab {
  private readonly _chart: Chart;
  readonly root: HTMLElement;

  constructor(picked: (trial: number) => void) {
    this._chart = new Chart('What makes the difference', 1, picked);
    this.root = h('div', { class: 'dl-charts dl-one-chart' }, this._chart.root);
  }

  draw({ status, importance }: TabView): void {
    if (importance === null) {
      this._chart.update(() => [], '', 'loading');
      return;
    }
    const { unit, trials, missing } = importance;
    const of = `of the best tenth of ${trials} trials from the rest, at ${status.unit} ${unit ?? ''} (PED-ANOVA)`;
    const height = bars(importance, 100).height;
    this._chart.update(
      width => bars(importance, width).shapes,
      barsText(importance),
      missing || `What tells ${of}.`,
      height
    );
  }

  dispose(): void {
    this._chart.dispose();
  }
}
