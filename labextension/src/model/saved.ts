/** What a notebook's output holds: what `jupyter_ext/views/saved_state.py` writes there. */

import type { Curves, Overview, SearchCurves, SearchStatus } from '../api/types';

/** How a search stood when a notebook was saved. */
export interface SavedSearch {
  standing: SearchStatus;
  curves: SearchCurves;
}

/** What it holds under MIME_TYPE: enough to draw the experiment with no service at all. */
export interface Saved {
  version: 1;
  number: number;
  at: number; // when this was true: seconds since the epoch
  captured: string[]; // sentences about the submission
  names: string[]; // of the hyperparameters, in their order: notebooks are saved with sorted keys
  overview: Overview;
  curves: Curves | null;
  search: SavedSearch | null;
}

export const MIME_TYPE = 'application/vnd.daylight.experiment+json';
