/** Content of a tab with experiments: connections and drawing. Loaded when the first tab is opened. */

import type { Widget } from '@lumino/widgets';

import type { Overview } from '../api/types';
import { stateOf } from '../model/overview';
import { titleText } from '../model/text';
import type { Source } from '../service/source';
import { Watch } from '../service/watch';
import type { ViewSettings } from '../view/settings';
import { numbersLabel } from './list';
import type { LiveSettings, Settings } from './settings';

/** Options of a tab; `news` is called when an experiment changes its state, `open` shows one by itself. */
export interface TabOptions {
  source: Source;
  settings: LiveSettings;
  news: () => void;
  open: (number: number) => void;
}

/** Drawing of experiments in a node. */
export interface Drawing {
  settings: ViewSettings;
  dispose(): void;
}

export type Watches = readonly [Watch, ...Watch[]];
export type Draw = (
  node: HTMLElement,
  watches: Watches,
  settings: ViewSettings,
  open: (number: number) => void
) => Drawing;

export class TabContent {
  private readonly _watches: readonly Watch[];
  private readonly _view: Drawing;
  private _state: string | null = null;

  constructor(
    private readonly _tab: Widget,
    private readonly _numbers: readonly number[],
    private readonly _options: TabOptions,
    draw: Draw
  ) {
    this._watches = _numbers.map(number => new Watch(_options.source, number));
    this._view = draw(_tab.node, this._watches as Watches, _options.settings.current.view, _options.open);
    this._watches.forEach(watch => watch.subscribe(() => this._changed()));
    this._changed();
    _options.settings.changed.connect(this._settingsChanged);
    this._watches.forEach(watch => watch.start());
  }

  /** Return the overview of an experiment in this tab; null if it is not here. */
  find(number: number): Overview | null {
    return this._watches[this._numbers.indexOf(number)]?.look.overview ?? null;
  }

  /** Retry to connect after an error. */
  retry(): void {
    this._watches.forEach(watch => watch.retry());
  }

  dispose(): void {
    this._options.settings.changed.disconnect(this._settingsChanged);
    this._view.dispose();
    this._watches.forEach(watch => watch.dispose());
  }

  private _changed(): void {
    const numbers = this._numbers;
    const overviews = this._watches.map(watch => watch.look.overview);
    const names = numbers.map((number, place) => {
      const overview = overviews[place];
      return overview ? titleText(overview) : `#${number}`;
    });
    const { title } = this._tab;
    title.label = numbers.length === 1 ? names.join() : numbersLabel(numbers);
    title.caption = numbers.length === 1 ? `Experiment ${names.join()}` : `Compare ${names.join(', ')}`;
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
