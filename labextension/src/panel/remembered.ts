/** What the browser remembers until the next visit: the filters of the panel. */

import { groupByIn } from './groupby';
import type { GroupBy } from './groupby';
import { STATES } from './list';

export interface Remembered {
  readonly search: string;
  readonly state: string | null;
  readonly here: boolean; // only those of the notebook in front
  readonly group: GroupBy;
  readonly queue: boolean; // queue and quotas are shown
}

export const NOTHING_REMEMBERED: Remembered = { search: '', state: null, here: false, group: '', queue: false };

/** Store of texts by key, such as the browser's `localStorage`; it throws if the browser stores nothing. */
export type Storage = Pick<globalThis.Storage, 'getItem' | 'setItem'>;

/** Parse the stored text; fields that are missing or invalid have the values of NOTHING_REMEMBERED. */
export function rememberedIn(text: string | null): Remembered {
  let told: unknown;
  try {
    told = JSON.parse(text ?? '');
  } catch {
    return NOTHING_REMEMBERED;
  }
  const { search, state, here, group, queue } = (told ?? {}) as Partial<Record<keyof Remembered, unknown>>;
  return {
    search: typeof search === 'string' ? search : '',
    state: STATES.find(each => each === state) ?? null,
    here: here === true,
    group: groupByIn(group),
    queue: queue === true
  };
}

/** Memory of a part of the page, by a key that differs between the Jupyter servers of one host. */
export class Memory<Told> {
  /** `parse` returns what is stored as a text; null is nothing. */
  constructor(
    private readonly _storage: () => Storage,
    private readonly _key: string,
    private readonly _parse: (text: string | null) => Told
  ) {}

  read(): Told {
    try {
      return this._parse(this._storage().getItem(this._key));
    } catch {
      return this._parse(null);
    }
  }

  write(told: Told): void {
    try {
      this._storage().setItem(this._key, JSON.stringify(told));
    } catch {
      // The filters last as long as the page.
    }
  }
}
