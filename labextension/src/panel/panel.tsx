/** The side panel; the code of its contents is loaded when it is first shown. */

import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Part } from '../part';
import { PartNotice } from '../view/partnotice';
import type { Experiments } from './experiments';
import { sunIcon } from './icon';
import type { Doors } from './panelbody';

const BODY = new Part(() => import('./panelbody'));

export class Panel extends ReactWidget {
  private readonly _notice = new PartNotice(BODY);
  private _notebook: string | null = null;

  constructor(
    private readonly _experiments: Experiments,
    private readonly _doors: Doors
  ) {
    super();
    this.id = 'daylight-panel';
    this.addClass('dl-panel');
    this.title.icon = sunIcon;
    this.title.caption = 'Daylight';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Daylight');
    _experiments.changed.connect(() => this.update());
    BODY.listen(() => this.update());
  }

  /**
   * Set the notebook in front. For any other widget the last notebook stays selected, so that the header keeps its
   * height.
   */
  set notebook(path: string | null) {
    if (path === null) {
      return;
    }
    this._notebook = path;
    this._experiments.follow(path);
    this.update();
  }

  protected override onAfterShow(): void {
    void BODY.load();
    this._experiments.watched = true;
  }

  protected override onBeforeHide(): void {
    this._experiments.watched = false;
  }

  protected override render(): React.JSX.Element {
    if (BODY.code === null) {
      this._notice.update();
      return <div ref={place => place?.replaceChildren(this._notice.root)} />;
    }
    const { PanelBody } = BODY.code;
    return <PanelBody experiments={this._experiments} notebook={this._notebook} doors={this._doors} />;
  }
}
