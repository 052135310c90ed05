/** Name, note and tags of an experiment, and what an edit of them asks for. No DOM. */

import type { Experiment, LabelEditInput } from '../api/types';

export interface Labels {
  readonly name: string;
  readonly tags: readonly string[];
  readonly note: string;
}

/** The labels of an experiment; notebooks that were saved before there were notes and tags have none. */
export function labelsOf(experiment: Experiment): Labels {
  const { name, tags = [], note = '' } = experiment as Pick<Experiment, 'name'> & Partial<Experiment>;
  return { name, tags, note };
}

/** The tags that a user typed: separated by spaces or commas, each once. */
export function tagsIn(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter(tag => tag !== ''))];
}

/** The body that turns one set of labels into another; null where they are the same. */
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
