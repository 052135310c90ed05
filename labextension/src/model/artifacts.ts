/** Texts about artifacts. `kernel_backend/model/artifacts.py` defines which artifacts are pictures. */

import type { Artifact } from '../api/types';
import { size } from './text';

export const MOST_TILES = 24; // tiles of one trial
export const PICTURE_BYTES = 4 * 2 ** 20; // of a picture that is fetched without a click; a kernel forwards no more
export const MOST_BYTES = 50 * 2 ** 20; // size of any file that a page transfers

// Media types that cannot contain scripts.
const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const DAY_S = 86_400;

export function isPicture(artifact: Artifact): boolean {
  return PICTURES.includes(artifact.media) && artifact.size <= PICTURE_BYTES;
}

/** Return the suffix of an artifact's file, such as `CSV`. */
export function kindText(artifact: Artifact): string {
  const suffix = /\.([A-Za-z0-9]{1,6})$/.exec(artifact.file)?.[1] ?? 'file';
  return suffix.toUpperCase();
}

export function sizeText(artifact: Artifact): string {
  return size(artifact.size);
}

/** Format a time as the time of day, or as a date if it was longer ago. */
export function whenText(at: number, now: number): string {
  const date = new Date(at * 1000);
  return now - at < DAY_S
    ? date.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })
    : date.toLocaleDateString();
}

/**
 * Return a sentence on which trial of a search has stored the artifacts, and on how many are not shown; "" if none is
 * needed.
 */
export function savedText(
  number: number,
  mine: readonly Artifact[],
  all: readonly Artifact[],
  trial: number | null
): string {
  const whose =
    trial === null ? '' : `of trial ${number}.${trial}: ${mine.length || 'none'}; of all trials: ${all.length}`;
  const which = trial === null ? number : `${number}.${trial}`;
  const more = mine.length > MOST_TILES ? `${mine.length - MOST_TILES} more: %dl artifacts ${which}` : '';
  return [whose, more].filter(part => part !== '').join('; ');
}

export function tooLarge(number: number, artifact: Artifact): string {
  return `${artifact.name} is too large for a page: %dl artifacts ${number}.${artifact.trial} --get '${artifact.name}'`;
}
