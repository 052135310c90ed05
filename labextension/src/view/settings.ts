/** The user's settings of curves. */

export type Axis = 'epoch' | 'step' | 'time' | 'row'; // rows are the steps of what uses a model
export const AXES: readonly Axis[] = ['epoch', 'step', 'time'];

export interface ViewSettings {
  smoothing: number; // 0..0.99
  logAxis: boolean;
  axis: Axis;
}

export const DEFAULTS: ViewSettings = { smoothing: 0, logAxis: false, axis: 'epoch' };
