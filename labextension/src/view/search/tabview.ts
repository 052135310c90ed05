/** What the tabs of a search draw. */

import type { Importance, SearchCurves, SearchStatus } from '../../api/types';
import type { Look } from '../../service/watch';

/** A search as it is known now, and which of its trials is looked at. */
export interface TabView {
  readonly status: SearchStatus;
  readonly look: Look;
  readonly trial: number | null;
  readonly curves: SearchCurves | null;
  readonly importance: Importance | null;
}
