/** Data that the tabs of a search draw. */

import type { Importance, SearchCurves, SearchStatus } from '../../api/types';
import type { Look } from '../../service/watch';
import type { Loaded } from './loadingproblem';

/** Current data of a search, and the selected trial. */
export interface TabView {
  readonly status: SearchStatus;
  readonly look: Look;
  readonly trial: number | null;
  readonly curves: SearchCurves | null;
  readonly importance: Importance | null;
  readonly failed: ReadonlyMap<Loaded, string>; // messages of what could not be loaded
}
