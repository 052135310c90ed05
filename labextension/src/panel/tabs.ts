/** Experiments in tabs of the main area: one tab each, restored after a reload. */

import type { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import type { Overview } from '../api/types';
import { Part } from '../part';
import { PartNotice } from '../view/partnotice';
import { sunIcon } from './icon';
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
export class Tab extends Widget {
  private readonly _part: Part<TabCode>;
  private readonly _notice: PartNotice;
  private readonly _unlisten: () => void;
  private _content: TabContent | null = null;

  constructor(
    readonly numbers: readonly number[],
    private readonly _options: TabOptions
  ) {
    super();
    this._part = numbers.length === 1 ? ONE : SEVERAL;
    this._notice = new PartNotice(this._part);
    this.addClass('dl-tab');
    this.node.tabIndex = -1;
    this.node.append(this._notice.root);
    this.title.icon = sunIcon;
    this.title.closable = true;
    this.title.label = numbersLabel(numbers);
    this._unlisten = this._part.listen(() => this._render());
    void this._part.load();
    this._render();
  }

  /** Return the overview of an experiment in this tab; null if it is not here. */
  find(number: number): Overview | null {
    return this._content?.find(number) ?? null;
  }

  /** Retry to load or to connect after an error. */
  retry(): void {
    void this._part.load();
    this._content?.retry();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._unlisten();
      this._content?.dispose();
      super.dispose();
    }
  }

  private _render(): void {
    const { code } = this._part;
    this._notice.update();
    if (code && this._content === null) {
      this._content = new code.TabContent(this, this.numbers, this._options, code.draw);
    }
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
    const id = `daylight-${numbers.join('-')}`;
    const known = this._tracker.find(each => each.id === id);
    known?.content.retry(); // the experiment may exist by now
    const widget = known ?? this._make(id, numbers);
    if (!widget.isAttached) {
      this._shell.add(widget, 'main');
    }
    this._shell.activateById(widget.id);
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

  private _make(id: string, numbers: readonly number[]): MainAreaWidget<Tab> {
    const widget = new MainAreaWidget({ content: new Tab(numbers, this._options) });
    widget.id = id;
    widget.toolbar.hide();
    void this._tracker.add(widget);
    return widget;
  }
}
