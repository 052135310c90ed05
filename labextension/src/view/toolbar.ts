/** Controls for curves: logarithmic axis, smoothing, and the quantity of the x axis. */

import { h, setText } from './dom';
import { AXES, type Axis, type ViewSettings } from './settings';

export class Toolbar {
  readonly root: HTMLElement;
  private readonly _log: HTMLInputElement;
  private readonly _smoothing = h('input', { type: 'range', min: 0, max: 0.99, step: 0.01 });
  private readonly _amount = h('output', { class: 'dl-amount' });
  private readonly _axis: HTMLSelectElement;

  constructor(
    private _settings: ViewSettings,
    private readonly _changed: (settings: ViewSettings) => void
  ) {
    this._log = h('input', { type: 'checkbox', onchange: () => this._set({ logAxis: this._log.checked }) });
    this._smoothing.addEventListener('input', () => this._set({ smoothing: Number(this._smoothing.value) }));
    this._axis = h(
      'select',
      { onchange: () => this._set({ axis: this._axis.value as Axis }) },
      ...AXES.map(axis => h('option', { value: axis }, axis))
    );
    this.root = h(
      'div',
      { class: 'dl-toolbar', role: 'toolbar', 'aria-label': 'Curves' },
      h('label', {}, 'x axis', this._axis),
      h('label', {}, this._log, 'log axis'),
      h('span', { class: 'dl-slider' }, h('label', {}, 'smoothing', this._smoothing), this._amount)
    );
    this._show();
  }

  get settings(): ViewSettings {
    return this._settings;
  }

  /** Show settings that were changed elsewhere. */
  set settings(settings: ViewSettings) {
    this._settings = settings;
    this._show();
  }

  private _set(change: Partial<ViewSettings>): void {
    this._settings = { ...this._settings, ...change };
    this._show();
    this._changed(this._settings);
  }

  private _show(): void {
    const { logAxis, smoothing, axis } = this._settings;
    this._log.checked = logAxis;
    this._axis.value = axis;
    if (Number(this._smoothing.value) !== smoothing) {
      this._smoothing.value = String(smoothing);
    }
    setText(this._amount, smoothing > 0 ? smoothing.toFixed(2) : '');
  }
}
