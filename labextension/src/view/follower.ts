/** Part of a view that polls a measurement of a trial, while the training runs and the part is visible. */

import type { Look, Watch } from '../service/watch';
import { changes, show } from './dom';
import { Sight } from './frame';
import { ticking } from './head';
import { Polling } from './search/polling';

export class Follower {
  private readonly _polling: Polling<unknown>;
  private readonly _sight: Sight;
  private readonly _changed = changes();
  private _trial: number | null = null;
  look: Look | null = null;

  /** Hide the root until there is an answer to draw; `query` may add to what is asked at a path. */
  constructor(
    private readonly _root: HTMLElement,
    watch: Pick<Watch, 'ask'>,
    path: string,
    draw: (answer: unknown) => void,
    every: number,
    query: () => Record<string, number> = () => ({})
  ) {
    this._polling = new Polling(
      () => watch.ask(path, { ...query(), ...(this._trial === null ? {} : { trial: this._trial }) }),
      draw,
      () => undefined, // an older service measures none; a lost connection is shown elsewhere
      every
    );
    this._sight = new Sight(_root, () => this.tick());
  }

  /** Follow the experiment; `chosen` is the selected trial of a search. */
  update(look: Look, chosen: number | null): void {
    this.look = look;
    const front = look.overview?.trials[0];
    if (this._changed(look.number, chosen, look.connection, front?.state, front?.attempt)) {
      if (chosen !== this._trial) {
        this._trial = chosen;
        show(this._root, false);
      }
      this.want();
    }
  }

  /** Request new measurements while the training runs; call it about once a second. */
  tick(): void {
    if (this.look !== null && ticking(this.look) && (this._root.hidden || this._sight.visible)) {
      this.want();
    }
  }

  want(): void {
    const begun = (this.look?.overview?.attempts ?? []).length > 0;
    if (begun && this.look !== null && ['live', 'ended'].includes(this.look.connection)) {
      this._polling.want();
    }
  }

  dispose(): void {
    this._polling.dispose();
    this._sight.dispose();
  }
}
