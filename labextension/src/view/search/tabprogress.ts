/** Tab with the incumbent over time, and the brackets of rungs. */

import type { BracketStatus } from '../../api/types';
import { number } from '../../model/text';
import { h, setLines, show } from '../dom';
import { Chart } from './chart';
import { ladder, ladderText } from './ladder';
import { incumbent, type Over } from './lines';
import type { TabView } from './tabview';

const HEIGHT = 250;
const NO_RESULT = 'no result yet';

export class ProgressTab {
  private readonly _over = h(
    'select',
    { 'aria-label': 'over', onchange: () => this._again() },
    h('option', { value: 'time' }, 'over time'),
    h('option', { value: 'units' }, 'over training')
  );
  private readonly _which = h('select', { 'aria-label': 'bracket', onchange: () => this._again() });
  private readonly _best: Chart;
  private readonly _rungs: Chart;
  private _seen: TabView | null = null;
  readonly root: HTMLElement;

  constructor(picked: (trial: number) => void) {
    this._best = new Chart('Best so far', HEIGHT, picked, this._over);
    this._rungs = new Chart('Rungs', HEIGHT, picked, this._which);
    this.root = h('div', { class: 'dl-charts' }, this._best.root, this._rungs.root);
  }

  draw(seen: TabView): void {
    this._seen = seen;
    const { status, trial } = seen;
    const { best } = status;
    this._best.update(
      (width, height) => incumbent(status, this._over.value as Over, width, height),
      best ? `the best ${status.metric.name} so far is ${number(best.best ?? NaN)}, of trial ${best.trial}` : NO_RESULT,
      best ? '' : NO_RESULT
    );
    this._offer(status.brackets);
    const bracket = status.brackets[Math.max(0, this._which.selectedIndex)];
    show(this._rungs.root, bracket !== undefined);
    if (bracket) {
      const words = ladderText(bracket, status.unit, status.metric);
      this._rungs.update((width, height) => ladder(status, bracket, width, height, trial), words);
    }
  }

  dispose(): void {
    this._best.dispose();
    this._rungs.dispose();
  }

  /** Offer the brackets for selection, if there are several. */
  private _offer(brackets: readonly BracketStatus[]): void {
    const chosen = Math.max(0, this._which.selectedIndex);
    setLines(this._which, brackets.map(nameOf), () => h('option'));
    this._which.selectedIndex = Math.min(chosen, brackets.length - 1);
    show(this._which, brackets.length > 1);
  }

  private _again(): void {
    if (this._seen) {
      this.draw(this._seen);
    }
  }
}

/** Format a bracket's name, by its lowest rung: `from epoch 4: 12 results`. */
function nameOf({ rungs }: BracketStatus): string {
  const [first] = rungs;
  return `from ${first?.unit ?? 1}: ${first?.results ?? 0} results`;
}
