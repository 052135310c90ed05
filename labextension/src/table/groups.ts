/** Group the rows of the table of experiments. No DOM. */

import type { ExperimentRow } from '../api/types';
import type { GroupBy } from '../panel/groupby';
import { groupsOf } from '../panel/groups';
import type { Section } from '../view/sortedtable';
import { trialGroups } from '../view/search/trialgroups';

/** Return the groups in order, with their numbers of rows; an experiment is in the group of each of its tags. */
export function experimentGroups(rows: readonly ExperimentRow[], by: GroupBy): Section<ExperimentRow>[] {
  if (by === '') {
    return [{ title: '', rows }];
  }
  const found = by.startsWith('param:')
    ? trialGroups(rows, by.slice('param:'.length))
    : groupsOf(rows, by, valuesOf).map(({ title, items }) => ({ title, rows: items }));
  return found.map(({ title, rows: own }) => ({ title: `${title} \u00b7 ${own.length}`, rows: own }));
}

function valuesOf(row: ExperimentRow, by: GroupBy): readonly string[] {
  switch (by) {
    case 'tag':
      return row.tags;
    case 'state':
      return [row.state];
    default:
      return row.notebook === null ? [] : [row.notebook.split(/[/\\]/).pop() ?? ''];
  }
}
