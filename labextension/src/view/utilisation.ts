/** Use of an experiment's slots: the newest values as a line of text, and curves of each rank. */

import type { Utilisation as UtilisationOf } from '../api/types';
import { panelsOfUse, type UsePanel, useText } from '../model/utilisation';
import { ended } from '../model/overview';
import type { Look, Watch } from '../service/watch';
import { changes, h, setText, show } from './dom';
import { Frame, Sight } from './frame';
import { ticking } from './head';
import { lineOf } from './lines';
import { beginning, colourOf, type Plotted } from './plotted';
import { Plots } from './plots';
import { Polling } from './search/polling';
import type { ViewSettings } from './settings';

const EVERY_MS = 5000; // as launchers sample
const POINTS = 200;
const MOST_LINES = 8;
const LOOK: ViewSettings = { axis: 'time', smoothing: 0, logAxis: false };

export class Utilisation {
  private readonly _summary = h('summary', {});
  private readonly _fold: HTMLDetailsElement;
  readonly root: HTMLElement;
  private readonly _plots: Plots;
  private readonly _frame = new Frame(() => this._plots.draw());
  private readonly _polling: Polling<unknown>;
  private readonly _sight: Sight;
  private readonly _changed = changes();
  private _look: Look | null = null;
  private _trial: number | null = null;

  constructor(
    host: HTMLElement,
    private readonly _watch: Pick<Watch, 'ask'>
  ) {
    this._plots = new Plots(host, () => this._frame.request());
    this._fold = h(
      'details',
      { class: 'dl-fold', ontoggle: () => this._want() },
      this._summary,
      this._plots.reset,
      this._plots.root
    );
    this.root = h('section', { class: 'dl-use', 'aria-label': 'Use of slots', hidden: true }, this._fold);
    this._polling = new Polling(
      () => this._watch.ask('/utilisation', this._query()),
      answer => this._draw(answer as UtilisationOf),
      () => undefined, // an older service measures none; a lost connection is shown elsewhere
      EVERY_MS
    );
    this._sight = new Sight(this.root, () => this.tick());
  }

  /** Follow the experiment; `chosen` is the selected trial of a search. */
  update(look: Look, chosen: number | null = null): void {
    this._look = look;
    const front = look.overview?.trials[0];
    if (this._changed(look.number, chosen, look.connection, front?.state, front?.attempt)) {
      if (chosen !== this._trial) {
        this._trial = chosen;
        show(this.root, false);
      }
      this._want();
    }
  }

  /** Request the newest samples while the training runs; call it about once a second. */
  tick(): void {
    if (this._look !== null && ticking(this._look) && (this.root.hidden || this._sight.visible)) {
      this._want();
    }
  }

  dispose(): void {
    this._polling.dispose();
    this._sight.dispose();
    this._plots.dispose();
    this._frame.dispose();
  }

  /** Return the query of the request: it includes the curves only while they are shown. */
  private _query(): Record<string, number> {
    return { points: this._fold.open ? POINTS : 0, ...(this._trial === null ? {} : { trial: this._trial }) };
  }

  private _want(): void {
    const look = this._look;
    const begun = (look?.overview?.attempts ?? []).length > 0;
    if (begun && look !== null && ['live', 'ended'].includes(look.connection)) {
      this._polling.want();
    }
  }

  private _draw(found: UtilisationOf): void {
    const over = this._look?.overview && ended(this._look.overview);
    const text = useText(over ? { ...found, latest: null } : found);
    show(this.root, text !== '');
    setText(this._summary, `Use of slots, ${text}`);
    if (this._look !== null && this._fold.open) {
      const origin = beginning(this._look);
      const plots = panelsOfUse(found).map(panel => plotted(panel, origin));
      this._plots.update(plots, LOOK.axis);
      this._frame.request();
    }
  }
}

/** Return the plot of a quantity over time, with a line for each of the first ranks. */
function plotted({ title, curves }: UsePanel, origin: number): Plotted {
  const shown = [...curves].slice(0, MOST_LINES);
  const more = curves.size - shown.length;
  return {
    metric: title,
    from: shown.map(([, curve]) => curve),
    make: () => ({
      picture: {
        lines: shown.map(([rank, curve], index) =>
          lineOf(curve, { label: `rank ${rank}`, colour: colourOf(index) }, LOOK, origin)
        ),
        axis: LOOK.axis,
        log: false
      },
      note: more > 0 ? `${more} more ranks` : ''
    })
  };
}
