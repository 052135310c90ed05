/** Experiments that are listed, newest first, read page by page. No DOM. */

import type { Overview } from '../api/types';
import { PAGE } from './list';

/**
 * List of experiments that is refreshed page by page: each poll reads the first page, and one of the others in turn.
 *
 * The cost of a poll therefore does not depend on how many experiments are listed. A page is the experiments below a
 * number, so that new and deleted ones shift no other page.
 */
export class Pages {
  private _list: readonly Overview[] = [];
  private _hasMore = false;
  private _wanted = false; // the page below the last one
  private _last = 0; // number above the next page in turn

  get list(): readonly Overview[] {
    return this._list;
  }

  /** Whether there may be more experiments than those that are listed. */
  get hasMore(): boolean {
    return this._hasMore;
  }

  /** Read one more page, below the last one, at the next poll. */
  more(): void {
    this._wanted = true;
  }

  /** Read the page with this experiment at the next poll, as the experiment has been changed. */
  again(number: number): void {
    this._last = number + 1;
  }

  /** Return the number below which the next poll reads a second page; null if there is only the first page. */
  next(): number | null {
    const end = this._list.at(-1);
    if (this._wanted && end) {
      return numberOf(end);
    }
    const others = this._list.slice(PAGE);
    const following = others.find(each => numberOf(each) < this._last) ?? others[0];
    return following ? numberOf(following) + 1 : null;
  }

  /** Merge the first page, and the page below `before`, into the list. */
  take(first: readonly Overview[], page: readonly Overview[], before: number | null): void {
    const newest = this._list[0];
    const lowest = endOf(first);
    if (newest && numberOf(newest) < lowest) {
      this._list = []; // so many are new that some between them and the others are unknown
      before = null;
    }
    this._put(first, Infinity);
    if (before !== null) {
      this._put(page, before);
      this._last = endOf(page);
      this._wanted = false;
    }
  }

  /** Replace the listed experiments between `before` and the last number of a page by the page. */
  private _put(page: readonly Overview[], before: number): void {
    const end = endOf(page);
    const above = this._list.filter(each => numberOf(each) >= before);
    const below = this._list.filter(each => numberOf(each) < end);
    this._list = [...above, ...page, ...below];
    this._hasMore = below.length === 0 ? end > 0 : this._hasMore;
  }
}

/** Return the number of a page's last experiment; 0 if it is the last page, since there is none below it. */
function endOf(page: readonly Overview[]): number {
  const last = page.at(-1);
  return last && page.length >= PAGE ? numberOf(last) : 0;
}

function numberOf({ experiment }: Overview): number {
  return experiment.number;
}
