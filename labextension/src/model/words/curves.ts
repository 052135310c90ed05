/** The words of `kernel_backend/model/curves.py` as they look in JSON. */

import type { Num } from './record';
import type { Kind } from './reports';

export interface Curve {
  kind: Kind;
  metric: string;
  size: number[];
  step: number[];
  epoch: number[];
  at: number[];
  mean: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
  broken: number[];
  last: Num | null;
}

export interface Curves {
  trial: number;
  curves: Curve[];
  seq: number;
}
