/** Name, note and tags of an experiment, and requests that edit them. No DOM. */

import type { Experiment, LabelEditInput } from '../api/types';

export interface Labels {
  readonly name: string;
  readonly tags: readonly string[];
  readonly note: string;
}

/** Return the labels of an experiment; experiments in old notebooks have no note and no tags. */
export function labelsOf(experiment: Experiment): Labels {
  const { name, tags = [], note = '' } = experiment as Pick<Experiment, 'name'> & Partial<Experiment>;
  return { name, tags, note };
}

/** Return the tags in a text typed by a user: separated by spaces or commas, without duplicates. */
export function tagsIn(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter(tag => tag !== ''))];
}

/** Return the request body that changes the labels `before` to `after`; null if they are equal. */
export function editOf(before: Labels, after: Labels): LabelEditInput | null {
  const added = after.tags.filter(tag => !before.tags.includes(tag));
  const removed = before.tags.filter(tag => !after.tags.includes(tag));
  const edit = {
    ...(after.name === before.name ? {} : { name: after.name }),
    ...(after.note === before.note ? {} : { note: after.note }),
    ...(added.length ? { add_tags: added } : {}),
    ...(removed.length ? { remove_tags: removed } : {})
  };
  return Object.keys(edit).length ? edit : null;
}
