/** Tab of the main area of which a page has one, such as that of all experiments; its code is loaded when it is opened. */

import type { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import { type MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';

import { type Content, LazyTab, openTab } from './lazytab';

interface Watched extends Content {
  watched: boolean; // whether it is visible, and so kept up to date
}

class WatchedTab<Code, Shown extends Watched> extends LazyTab<Code, Shown> {
  protected override onAfterShow(): void {
    this._watch(true);
  }

  protected override onBeforeHide(): void {
    this._watch(false);
  }

  private _watch(watched: boolean): void {
    if (this.content) {
      this.content.watched = watched;
    }
  }
}

export class SingleTab<Code, Shown extends Watched> {
  private readonly _tracker: WidgetTracker<MainAreaWidget<WatchedTab<Code, Shown>>>;

  constructor(
    private readonly _shell: ILabShell,
    private readonly _id: string,
    private readonly _arguments: ConstructorParameters<typeof WatchedTab<Code, Shown>>
  ) {
    this._tracker = new WidgetTracker({ namespace: _id });
  }

  /** Open the tab, or activate it if it is open. */
  open(): void {
    openTab(this._shell, this._tracker, this._id, () => new WatchedTab(...this._arguments));
  }

  /** Restore the tab of the last session by this command. */
  restore(restorer: ILayoutRestorer, command: string): void {
    void restorer.restore(this._tracker, { command, name: () => this._id });
  }
}
