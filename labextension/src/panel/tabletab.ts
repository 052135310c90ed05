/** Tab of the main area with the table of experiments; its code is loaded when it is first opened. */

import type { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import { MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';

import { Part } from '../part';
import type { TableView, TableOptions } from '../table/tableview';
import { LazyTab } from './lazytab';

type TableCode = typeof import('../table/tableview');

const TABLE = new Part<TableCode>(() => import('../table/tableview'));
const ID = 'daylight-experiments';

class TableTab extends LazyTab<TableCode, TableView> {
  constructor(options: TableOptions) {
    super(TABLE, 'Experiments', ({ TableView }, tab) => new TableView(tab.node, options, tab.isVisible));
  }

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

/** The only table of experiments of a page. */
export class Table {
  private readonly _tracker = new WidgetTracker<MainAreaWidget<TableTab>>({ namespace: ID });

  constructor(
    private readonly _shell: ILabShell,
    private readonly _options: TableOptions
  ) {}

  /** Open the table, or activate it if it is open. */
  open(): void {
    const known = this._tracker.find(() => true);
    known?.content.retry();
    const widget = known ?? this._make();
    if (!widget.isAttached) {
      this._shell.add(widget, 'main');
    }
    this._shell.activateById(ID);
  }

  /** Restore the table of the last session by this command. */
  restore(restorer: ILayoutRestorer, command: string): void {
    void restorer.restore(this._tracker, { command, name: () => ID });
  }

  private _make(): MainAreaWidget<TableTab> {
    const widget = new MainAreaWidget({ content: new TableTab(this._options) });
    widget.id = ID;
    widget.toolbar.hide();
    void this._tracker.add(widget);
    return widget;
  }
}
