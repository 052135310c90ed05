/** Text about the training and the slot time that a search has used. */

import type { SearchStatus } from '../../api/types';
import { num } from '../../model/curves';
import { duration } from '../../model/text';

/**
 * Format the usage: `asha, 1/4 goes on from each rung · 99 epochs trained in 1 min 21 s of slot time; its budget is
 * used up`.
 */
export function spentText(status: SearchStatus): string {
  const { method, search, trained, unit, spent, closed } = status;
  const of = search.budget === null ? '' : ` of ${duration(num(search.budget))}`;
  const why = closed === null ? '' : `; its ${closed === 'budget' ? 'budget' : 'time'} is used up`;
  const eta = status.brackets.length ? `, 1/${search.eta} goes on from each rung` : '';
  return `${method}${eta} \u00b7 ${trained} ${unit}${trained === 1 ? '' : 's'} trained in ${duration(spent)}${of} of slot time${why}`;
}
