/** Text about the training and the slot time that a search has used. */

import type { SearchStatus } from '../../api/types';
import { num } from '../../model/curves';
import { duration } from '../../model/text';

/**
 * Format the usage: `asha: after epochs 1 and 4 the best quarter goes on · 99 epochs trained in 1 min 21 s of slot time;
 * its budget is used up`.
 */
export function spentText(status: SearchStatus): string {
  const { method, search, trained, unit, spent, closed } = status;
  const of = search.budget === null ? '' : ` of ${duration(num(search.budget))}`;
  const why = closed === null ? '' : `; its ${closed === 'budget' ? 'budget' : 'time'} is used up`;
  return `${method}${rungsText(status)} \u00b7 ${trained} ${unit}${trained === 1 ? '' : 's'} trained in ${duration(spent)}${of} of slot time${why}`;
}

/** Return which trials go on, and after which lengths; "" for a method without rungs. */
function rungsText({ brackets, search, unit }: SearchStatus): string {
  const [bracket, another] = brackets;
  if (!bracket) {
    return '';
  }
  const share = { 2: 'half', 3: 'third', 4: 'quarter' }[search.eta] ?? `1/${search.eta}`;
  const compared = bracket.rungs.slice(0, -1).map(rung => rung.unit);
  const where =
    another || compared.length === 0
      ? 'at each rung'
      : `after ${unit}${compared.length > 1 ? 's' : ''} ${listed(compared)}`;
  return `: ${where} the best ${share} goes on`;
}

function listed(units: readonly number[]): string {
  return units.join(', ').replace(/, (\d+)$/, ' and $1');
}
