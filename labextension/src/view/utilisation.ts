/** Use of an experiment's slots: the newest values as a line of text, and curves of each rank. */

import type { Utilisation as UtilisationOf } from '../api/types';
import { panelsOfUse, type UsePanel, useText } from '../model/utilisation';
import { ended } from '../model/overview';
import type { Look, Watch } from '../service/watch';
import { h, setText, show } from './dom';
import { Frame } from './frame';
import { Follower } from './follower';
import { lineOf } from './lines';
import { beginning, colourOf, type Plotted } from './plotted';
import { Plots } from './plots';
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
  private readonly _follower: Follower;

  constructor(host: HTMLElement, watch: Pick<Watch, 'ask'>) {
    this._plots = new Plots(host, () => this._frame.request());
    this._fold = h(
      'details',
      { class: 'dl-fold', ontoggle: () => this._follower.want() },
      this._summary,
      this._plots.reset,
      this._plots.root
    );
    this.root = h('section', { class: 'dl-use', 'aria-label': 'Use of slots', hidden: true }, this._fold);
    const draw = (answer: unknown): void => this._draw(answer as UtilisationOf);
    // The curves only while they are shown.
    const query = (): Record<string, number> => ({ points: this._fold.open ? POINTS : 0 });
    this._follower = new Follower(this.root, watch, '/utilisation', draw, EVERY_MS, query);
  }

  /** Follow the experiment; `chosen` is the selected trial of a search. */
  update(look: Look, chosen: number | null = null): void {
    this._follower.update(look, chosen);
  }

  tick(): void {
    this._follower.tick();
  }

  dispose(): void {
    this._follower.dispose();
    this._plots.dispose();
    this._frame.dispose();
  }

  private _draw(found: UtilisationOf): void {
    const { look } = this._follower;
    const over = look?.overview && ended(look.overview);
    const text = useText(over ? { ...found, latest: null } : found);
    show(this.root, text !== '');
    setText(this._summary, `Use of slots, ${text}`);
    if (look !== null && this._fold.open) {
      const origin = beginning(look);
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
