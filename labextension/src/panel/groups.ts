/** Group the listed experiments by a tag, a state, a notebook or a hyperparameter. No DOM, no clock. */

import type { Overview, Value } from '../api/types';
import { labelsOf } from '../model/labels';
import { stateWord, valueText } from '../model/text';
import type { GroupBy } from './groupby';

export interface Group<Item> {
  readonly title: string;
  readonly items: readonly Item[]; // as listed
}

/** Return the names of hyperparameters with several values in the list, and of the one in `chosen`; sorted. */
export function groupParams(list: readonly Overview[], chosen: GroupBy): string[] {
  const values = new Map<string, Set<string>>();
  for (const { experiment } of list) {
    for (const [name, value] of Object.entries(experiment.params)) {
      values.set(name, (values.get(name) ?? new Set()).add(valueText(value)));
    }
  }
  const found = [...values].filter(([, texts]) => texts.size > 1).map(([name]) => name);
  const own = chosen.startsWith('param:') ? [chosen.slice('param:'.length)] : [];
  return [...new Set([...found, ...own])].sort();
}

/** Return the groups of items in order, those without a value last; an item is in the group of each of its values. */
export function groupsOf<Item>(
  list: readonly Item[],
  by: GroupBy,
  valuesOf: (item: Item, by: GroupBy) => readonly (Value | null)[]
): Group<Item>[] {
  const groups = new Map<string, { value: Value | null; items: Item[] }>();
  for (const item of list) {
    const values = valuesOf(item, by);
    for (const value of values.length ? values : [null]) {
      const title = titleOf(value, by);
      const group = groups.get(title) ?? { value, items: [] };
      group.items.push(item);
      groups.set(title, group);
    }
  }
  const found = [...groups].map(([title, { value, items }]) => ({ title, value, items }));
  return found.sort(byValue).map(({ title, items }) => ({ title, items }));
}

/** Return the values by which an experiment is grouped. */
export function valuesOf(overview: Overview, by: GroupBy): readonly (Value | null)[] {
  const { experiment } = overview;
  switch (by) {
    case '':
      return [''];
    case 'tag':
      return labelsOf(experiment).tags;
    case 'state':
      return [stateWord(overview)];
    case 'notebook':
      return [experiment.notebook?.replaceAll('\\', '/').split('/').at(-1) ?? null];
    default:
      return [experiment.params[by.slice('param:'.length)] ?? null];
  }
}

function titleOf(value: Value | null, by: GroupBy): string {
  const name = by.startsWith('param:') ? by.slice('param:'.length) : '';
  if (value === null) {
    return `no ${name || by}`;
  }
  return name || typeof value !== 'string' ? `${name} = ${valueText(value)}` : value;
}

function byValue(one: { value: Value | null }, other: { value: Value | null }): number {
  const [mine, theirs] = [one.value, other.value];
  if (mine === null || theirs === null) {
    return Number(mine === null) - Number(theirs === null);
  }
  if (typeof mine === 'number' && typeof theirs === 'number') {
    return mine - theirs;
  }
  return valueText(mine).localeCompare(valueText(theirs), 'en', { numeric: true });
}
