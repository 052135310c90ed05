/** Experiments in tabs of the main area: one tab each, restored after a reload. */

import type { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import { type MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';

import type { Overview } from '../api/types';
import { Part } from '../part';
import { LazyTab, openTab } from './lazytab';
import { numbersLabel } from './list';
import type { Draw, TabContent, TabOptions } from './tabcontent';

/** Code of a tab: its content, and the drawing in it. */
interface TabCode {
  TabContent: typeof TabContent;
  draw: Draw;
}

const ONE = new Part<TabCode>(async () => {
  const [{ TabContent }, { ExperimentView }] = await Promise.all([import('./tabcontent'), import('../view/view')]);
  return { TabContent, draw: (node, [watch], settings) => new ExperimentView(node, watch, settings) };
});
const SEVERAL = new Part<TabCode>(async () => {
  const [{ TabContent }, { CompareView }] = await Promise.all([import('./tabcontent'), import('../view/compare')]);
  return { TabContent, draw: (node, watches, settings, open) => new CompareView(node, watches, settings, open) };
});

/** Tab with one experiment, or with several side by side; their code is loaded when the first is opened. */
export class Tab extends LazyTab<TabCode, TabContent> {
  constructor(
    readonly numbers: readonly number[],
    options: TabOptions
  ) {
    super(numbers.length === 1 ? ONE : SEVERAL, numbersLabel(numbers), ({ TabContent, draw }, tab) => {
      return new TabContent(tab, numbers, options, draw);
    });
  }

  /** Return the overview of an experiment in this tab; null if it is not here. */
  find(number: number): Overview | null {
    return this.content?.find(number) ?? null;
  }
}

export class Tabs {
  private readonly _tracker = new WidgetTracker<MainAreaWidget<Tab>>({ namespace: 'daylight' });

  constructor(
    private readonly _shell: ILabShell,
    private readonly _options: TabOptions
  ) {}

  /** Open a tab with these experiments, or activate it if it is open. */
  open(numbers: readonly number[]): void {
    const make = (): Tab => new Tab(numbers, this._options);
    openTab(this._shell, this._tracker, `daylight-${numbers.join('-')}`, make);
  }

  /** Number of the experiment in the active tab, if there is one. */
  get current(): number | null {
    const front = this._shell.currentWidget;
    const numbers = this._tracker.find(widget => widget === front)?.content.numbers ?? [];
    return numbers.length === 1 ? (numbers[0] ?? null) : null;
  }

  /** Return an experiment's overview from the open tabs; null if none has it. */
  find(number: number): Overview | null {
    let found: Overview | null = null;
    this._tracker.forEach(widget => (found ??= widget.content.find(number)));
    return found;
  }

  /** Restore the tabs of the last session by this command. */
  restore(restorer: ILayoutRestorer, command: string): void {
    void restorer.restore(this._tracker, {
      command,
      args: widget => ({ numbers: [...widget.content.numbers] }),
      name: widget => widget.content.numbers.join('-')
    });
  }
}
