/** Texts about artifacts. `kernel_backend/model/artifacts.py` defines which artifacts are pictures. */

import type { Artifact } from '../api/types';
import { size } from './text';

export const MOST_TILES = 24; // tiles of one trial
export const PICTURE_BYTES = 4 * 2 ** 20; // of a picture that is fetched without a click; a kernel forwards no more
const TABLE_BYTES = 2 ** 20; // of a table that is shown
export const MOST_BYTES = 50 * 2 ** 20; // size of any file that a page transfers

// Media types that cannot contain scripts.
const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const TABLES = ['text/csv', 'text/tab-separated-values'];

export function isPicture(artifact: Artifact): boolean {
  return PICTURES.includes(artifact.media) && artifact.size <= PICTURE_BYTES;
}

export function isTable(artifact: Artifact): boolean {
  return TABLES.includes(artifact.media) && artifact.size <= TABLE_BYTES;
}

/** Artifacts that one tile shows: one, or several of a trial that were saved at different steps, oldest first. */
export interface Series {
  readonly key: string; // the same while it grows
  readonly name: string;
  readonly items: readonly Artifact[];
}

const NUMBERED = /^(.*\S)[ ._-]+(\d+)$/;

/**
 * Return the artifacts as series, in the order of their first ones.
 *
 * Those of a trial whose names differ by their last number alone (`samples 100`, `samples 200`) are one series, if each
 * was saved at a later step.
 */
export function seriesOf(artifacts: readonly Artifact[]): Series[] {
  const stems = new Map<string, Artifact[]>();
  for (const each of artifacts) {
    const key = stemOf(each);
    stems.set(key, [...(stems.get(key) ?? []), each]);
  }
  return [...stems.values()].flatMap(items => {
    const [first] = items;
    const sorted = [...items].sort((one, other) => numberOf(one) - numberOf(other));
    if (first && sorted.length > 1 && sorted.every((each, at) => at === 0 || each.step > (sorted[at - 1]?.step ?? 0))) {
      return [{ key: stemOf(first), name: NUMBERED.exec(first.name)?.[1] ?? first.name, items: sorted }];
    }
    return items.map(each => ({ key: `${each.trial}/${each.name}`, name: each.name, items: [each] }));
  });
}

function stemOf({ trial, name, media }: Artifact): string {
  const stem = NUMBERED.exec(name)?.[1];
  return stem === undefined ? `${trial}/${name}` : `${trial}/${stem} # ${media}`;
}

function numberOf({ name }: Artifact): number {
  return Number(NUMBERED.exec(name)?.[2] ?? 0);
}

/** Return the suffix of an artifact's file, such as `CSV`. */
export function kindText(artifact: Artifact): string {
  const suffix = /\.([A-Za-z0-9]{1,6})$/.exec(artifact.file)?.[1] ?? 'file';
  return suffix.toUpperCase();
}

export function sizeText(artifact: Artifact): string {
  return size(artifact.size);
}

/**
 * Return a sentence on which trial of a search has stored the artifacts, and on how many are not shown; "" if none is
 * needed.
 */
export function savedText(
  number: number,
  tiles: readonly Series[],
  mine: readonly Artifact[],
  all: readonly Artifact[],
  trial: number | null
): string {
  const whose =
    trial === null ? '' : `of trial ${number}.${trial}: ${mine.length || 'none'}; of all trials: ${all.length}`;
  const which = trial === null ? number : `${number}.${trial}`;
  const left = tiles.slice(MOST_TILES).reduce((count, { items }) => count + items.length, 0);
  const more = left > 0 ? `${left} more: %dl artifacts ${which}` : '';
  return [whose, more].filter(part => part !== '').join('; ');
}

export function tooLarge(number: number, artifact: Artifact): string {
  return `${artifact.name} is too large for a page: %dl artifacts ${number}.${artifact.trial} --get '${artifact.name}'`;
}
