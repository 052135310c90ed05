/** The words of `kernel_backend/model/stream.py` as they look in JSON. */

import type { Artifact } from './artifacts';
import type { Experiment } from './experiment';
import type { StoredReport } from './reports';
import type { Entry } from './search';
import type { Attempt, Trial } from './trial';

interface About {
  seq: number;
  at: number;
  experiment: number;
  trial: number | null;
}

export type Message = About &
  (
    | { type: 'experiment'; data: Experiment }
    | { type: 'trial'; data: Trial }
    | { type: 'attempt'; data: Attempt }
    | { type: 'report'; data: StoredReport }
    | { type: 'note'; data: { text: string; level?: string; attempt?: number } }
    | { type: 'artifact'; data: Artifact }
    | { type: 'search'; data: Entry }
  );
