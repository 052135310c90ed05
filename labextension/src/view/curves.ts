/** Curves of one experiment: a figure per metric, below a toolbar. */

import { ended } from '../model/overview';
import { runsAsItIs, usesModel } from '../model/text';
import type { Look } from '../service/watch';
import { h, setText, show } from './dom';
import { failureOf } from './failure';
import { alone } from './plotted';
import { Plots } from './plots';
import type { ViewSettings } from './settings';
import { Toolbar } from './toolbar';

export class Curves {
  readonly root: HTMLElement;
  private readonly _empty = h('p', { class: 'dl-empty' });
  private readonly _toolbar: Toolbar;
  private readonly _plots: Plots;
  private _look: Look | null = null;

  constructor(host: HTMLElement, settings: ViewSettings, wanted: () => void) {
    this._toolbar = new Toolbar(settings, () => {
      this._plan();
      wanted();
    });
    this._plots = new Plots(host, wanted);
    this._toolbar.root.append(this._plots.reset);
    this.root = h('section', { class: 'dl-curves' }, this._toolbar.root, this._plots.root, this._empty);
  }

  set settings(settings: ViewSettings) {
    this._toolbar.settings = settings;
    this._plan();
  }

  update(look: Look): void {
    this._look = look;
    const some = look.curves.length > 0;
    show(this._toolbar.root, some);
    // A failure explains missing curves itself, and code that is run unchanged need not report any.
    const { overview } = look;
    const expected = overview !== null && !runsAsItIs(overview.experiment.config) && failureOf(overview) === null;
    show(this.root, overview !== null && (some || expected));
    setText(this._empty, look.overview && ended(look.overview) ? 'no reports' : 'no reports yet');
    show(this._empty, !some);
    this._plan();
  }

  /** Draw if visible; return true if everything is drawn. */
  draw(): boolean {
    return this._plots.draw();
  }

  dispose(): void {
    this._plots.dispose();
  }

  private _plan(): void {
    if (this._look) {
      const { overview } = this._look;
      const rows = overview !== null && usesModel(overview.experiment.config);
      show(this._toolbar.root.children[0] as HTMLElement, !rows); // there is only one axis
      let { settings } = this._toolbar;
      if (rows && settings.axis !== 'row') {
        this._toolbar.settings = settings = { ...settings, axis: 'row' };
      }
      this._plots.update(alone(this._look, settings), settings.axis);
    }
  }
}
