/** The user's current settings, which schema/panel.json describes. */

import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

import { AXES, DEFAULTS as VIEW_DEFAULTS } from '../view/settings';
import type { ViewSettings } from '../view/settings';

export interface Settings {
  readonly refreshSeconds: number;
  readonly writeBack: boolean;
  readonly notices: boolean;
  readonly view: ViewSettings;
}

export const DEFAULTS: Settings = { refreshSeconds: 2, writeBack: true, notices: true, view: VIEW_DEFAULTS };

/** Return the user's settings; invalid values are replaced by the defaults. */
export function settingsIn(written: ReadonlyPartialJSONObject): Settings {
  const { refreshSeconds, writeBack, notices, smoothing, logAxis } = written;
  const { view } = DEFAULTS;
  return {
    refreshSeconds: within(refreshSeconds, 1, 60) ?? DEFAULTS.refreshSeconds,
    writeBack: typeof writeBack === 'boolean' ? writeBack : DEFAULTS.writeBack,
    notices: typeof notices === 'boolean' ? notices : DEFAULTS.notices,
    view: {
      smoothing: within(smoothing, 0, 0.99) ?? view.smoothing,
      logAxis: typeof logAxis === 'boolean' ? logAxis : view.logAxis,
      axis: AXES.find(axis => axis === written.axis) ?? view.axis
    }
  };
}

function within(value: unknown, least: number, most: number): number | null {
  return typeof value === 'number' && value >= least && value <= most ? value : null;
}

export class LiveSettings {
  private _current = DEFAULTS;
  private readonly _changed = new Signal<this, Settings>(this);

  get current(): Settings {
    return this._current;
  }

  get changed(): ISignal<this, Settings> {
    return this._changed;
  }

  /** Follow changes of the settings; until they are loaded, the defaults apply. */
  follow(settings: ISettingRegistry.ISettings): void {
    const take = (): void => {
      this._current = settingsIn(settings.composite);
      this._changed.emit(this._current);
    };
    settings.changed.connect(take);
    take();
  }
}
