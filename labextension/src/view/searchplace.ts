/** Place of a search in a view; its tabs and its table are loaded with the first search. */

import type { Curves } from '../api/types';
import { Part } from '../part';
import type { Look } from '../service/watch';
import { h, show } from './dom';
import { PartNotice } from './partnotice';
import { frontTrial, statusOf } from './search/savedstatus';
import type { SearchPart, SearchSource } from './search/search';

const SEARCH = new Part(() => import('./search/search'));

export class SearchPlace {
  private readonly _notice = new PartNotice(SEARCH);
  private readonly _unlisten: () => void;
  private _search: SearchPart | null = null;
  private _look: Look | null = null;
  private _asked = false;
  readonly root = h('div', { hidden: true }, this._notice.root);

  /** `looked` is called with the curves of the selected trial. */
  constructor(
    private readonly _watch: SearchSource,
    private readonly _looked: (curves: Curves) => void
  ) {
    this._unlisten = SEARCH.listen(() => this._draw());
  }

  /** Selected trial: the one that was clicked, else the best; null if there is none. */
  get trial(): number | null {
    const overview = this._look?.overview ?? null;
    return this._search
      ? this._search.trial
      : frontTrial(this._look?.search?.standing ?? (overview && statusOf(overview)));
  }

  update(look: Look): void {
    this._look = look;
    const there = look.overview !== null && (look.search !== null || look.overview.experiment.config.search !== null);
    show(this.root, there);
    if (there && !this._asked) {
      this._asked = true; // a failed load is repeated when the user wants it, not with each report
      void SEARCH.load();
    }
    this._draw();
  }

  dispose(): void {
    this._unlisten();
    this._search?.dispose();
  }

  private _draw(): void {
    this._notice.update();
    if (SEARCH.code && this._look !== null && !this.root.hidden) {
      this._search ??= this._made(SEARCH.code.SearchPart);
      this._search.update(this._look);
    }
  }

  private _made(Search: typeof SearchPart): SearchPart {
    const search = new Search(this._watch, this._looked);
    this.root.append(search.root);
    return search;
  }
}
