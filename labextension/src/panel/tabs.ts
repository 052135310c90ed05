/** Experiments in tabs of the main area: one tab each, restored after a reload. */

import type { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import type { Overview } from '../api/types';
import { stateOf } from '../model/overview';
import { titleText } from '../model/text';
import type { Source } from '../service/source';
import { Watch } from '../service/watch';
import type { ViewSettings } from '../view/settings';
import { CompareView } from '../view/compare';
import { ExperimentView } from '../view/view';
import { sunIcon } from './icon';
import type { LiveSettings, Settings } from './settings';

/** Options of a tab; `news` is called when an experiment changes its state. */
export interface TabOptions {
  source: Source;
  settings: LiveSettings;
  news: () => void;
}

interface Drawing {
  settings: ViewSettings;
  dispose(): void;
}

/** Tab with one experiment, or with several side by side. */
export class Tab extends Widget {
  private readonly _watches: readonly Watch[];
  private readonly _view: Drawing;
  private _state: string | null = null;

  constructor(
    readonly numbers: readonly number[],
    private readonly _options: TabOptions
  ) {
    super();
    this.addClass('dl-tab');
    this.node.tabIndex = -1;
    this._watches = numbers.map(number => new Watch(_options.source, number));
    this._view = this._draw(_options.settings.current.view);
    this.title.icon = sunIcon;
    this.title.closable = true;
    this._watches.forEach(watch => watch.subscribe(() => this._changed()));
    this._changed();
    _options.settings.changed.connect(this._settingsChanged);
    this._watches.forEach(watch => watch.start());
  }

  /** Return the overview of an experiment in this tab; null if it is not here. */
  find(number: number): Overview | null {
    return this._watches[this.numbers.indexOf(number)]?.look.overview ?? null;
  }

  /** Retry to connect after an error. */
  retry(): void {
    this._watches.forEach(watch => watch.retry());
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._options.settings.changed.disconnect(this._settingsChanged);
      this._view.dispose();
      this._watches.forEach(watch => watch.dispose());
      super.dispose();
    }
  }

  private _draw(settings: ViewSettings): Drawing {
    const [only, ...others] = this._watches;
    return only && others.length === 0
      ? new ExperimentView(this.node, only, settings)
      : new CompareView(this.node, this._watches, settings);
  }

  private _changed(): void {
    const overviews = this._watches.map(watch => watch.look.overview);
    const names = this.numbers.map((number, place) => {
      const overview = overviews[place];
      return overview ? titleText(overview) : `#${number}`;
    });
    this.title.label = this.numbers.length === 1 ? names.join() : this.numbers.map(number => `#${number}`).join(' · ');
    this.title.caption = this.numbers.length === 1 ? `Experiment ${names.join()}` : `Compare ${names.join(', ')}`;
    const state = overviews.map(overview => overview && stateOf(overview)).join();
    if (this._state !== null && state !== this._state) {
      this._options.news();
    }
    this._state = state;
  }

  private readonly _settingsChanged = (_: LiveSettings, { view }: Settings): void => {
    this._view.settings = view;
  };
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
