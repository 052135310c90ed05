/** What the browser remembers of the table of experiments until the next visit. */

import { groupByIn, type GroupBy } from '../panel/groupby';

export interface Chosen {
  readonly columns: Readonly<Record<string, boolean>>; // by name: whether the user wants to see it
  readonly sort: string; // name of a column
  readonly falls: boolean;
  readonly group: GroupBy;
}

/** Return what is stored in a text; fields that are missing or invalid have their first values. */
export function chosenIn(text: string | null): Chosen {
  let told: unknown;
  try {
    told = JSON.parse(text ?? '');
  } catch {
    told = null;
  }
  const { columns, sort, falls, group } = (told ?? {}) as Partial<Record<keyof Chosen, unknown>>;
  const named = typeof columns === 'object' && columns !== null ? Object.entries(columns) : [];
  return {
    columns: Object.fromEntries(named.filter((each): each is [string, boolean] => typeof each[1] === 'boolean')),
    sort: typeof sort === 'string' ? sort : 'number',
    falls: falls !== false,
    group: groupByIn(group)
  };
}
