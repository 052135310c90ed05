/** Data that the tabs of a search draw. */

import type { Importance, SearchCurves, SearchStatus } from '../../api/types';
import type { Look } from '../../service/watch';

/** Current data of a search, and the selected trial. */
export interface TabView {
  readonly status: SearchStatus;
  readonly look: Look;
  readonly trial: number | null;
  readonly curves: SearchCurves | null;
  readonly importance: Importance | null;
}
