/** The words of `kernel_backend/model/reports.py` as they look in JSON. */

import type { Metrics } from './record';

export type Kind = 'training' | 'validation';

export interface StoredReport {
  seq: number;
  trial: number;
  attempt: number;
  at: number;
  kind: Kind;
  step: number;
  epoch: number;
  metrics: Metrics;
}
