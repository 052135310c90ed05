/** Tab of the main area whose content is drawn by code that is loaded when the first tab of its kind is opened. */

import type { ILabShell } from '@jupyterlab/application';
import { MainAreaWidget, type WidgetTracker } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import type { Part } from '../part';
import { PartNotice } from '../view/partnotice';
import { sunIcon } from './icon';

export interface Content {
  retry(): void; // to connect after an error
  dispose(): void;
}

export class LazyTab<Code, Shown extends Content> extends Widget {
  private readonly _notice: PartNotice;
  private readonly _unlisten: () => void;
  protected content: Shown | null = null;

  /** `make` draws the content in the tab; if the code is there, before the constructor returns. */
  constructor(
    private readonly _part: Part<Code>,
    label: string,
    private readonly _make: (code: Code, tab: Widget) => Shown
  ) {
    super();
    this._notice = new PartNotice(_part);
    this.addClass('dl-tab');
    this.node.tabIndex = -1;
    this.node.append(this._notice.root);
    this.title.icon = sunIcon;
    this.title.closable = true;
    this.title.label = label;
    this._unlisten = _part.listen(() => this._render());
    void _part.load();
    this._render();
  }

  /** Retry to load or to connect after an error. */
  retry(): void {
    void this._part.load();
    this.content?.retry();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._unlisten();
      this.content?.dispose();
      super.dispose();
    }
  }

  private _render(): void {
    const { code } = this._part;
    this._notice.update();
    if (code && this.content === null) {
      this.content = this._make(code, this);
    }
  }
}

/** Open the tab with an id, or activate it if it is open. */
export function openTab<Tab extends Widget & Pick<Content, 'retry'>>(
  shell: ILabShell,
  tracker: WidgetTracker<MainAreaWidget<Tab>>,
  id: string,
  make: () => Tab
): void {
  const known = tracker.find(each => each.id === id);
  known?.content.retry(); // what it shows may exist by now
  const widget = known ?? new MainAreaWidget({ content: make() });
  if (!known) {
    widget.id = id;
    widget.toolbar.hide();
    void tracker.add(widget);
  }
  if (!widget.isAttached) {
    shell.add(widget, 'main');
  }
  shell.activateById(id);
}
