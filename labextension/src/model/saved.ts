/** State that a notebook's output contains, written by `jupyter_ext/views/saved_state.py`. */

import type { Curves, Overview, SearchCurves, SearchStatus } from '../api/types';

/** Status of a search when the notebook was saved. */
export interface SavedSearch {
  standing: SearchStatus;
  curves: SearchCurves;
}

/** State under MIME_TYPE: enough to draw the experiment without a service. */
export interface Saved {
  version: 1;
  number: number;
  at: number; // time of the state, in seconds since the epoch
  captured: string[]; // sentences about the submission
  names: string[]; // hyperparameters in their order, since notebooks are saved with sorted keys
  overview: Overview;
  curves: Curves | null;
  search: SavedSearch | null;
}

export const MIME_TYPE = 'application/vnd.daylight.experiment+json';
