/** Where the time of a training goes: a stacked bar with its legend, the main cause, bars by rank, operations. */

import type { Times as TimesOf } from '../api/types';
import { barsOf, partTexts, type Bar, type Part } from '../model/times';
import type { Look, Watch } from '../service/watch';
import { changes, h, setAttribute, setChildren, setText, show } from './dom';
import { Sight } from './frame';
import { ticking } from './head';
import { Operations } from './operations';
import { Polling } from './search/polling';

const EVERY_MS = 2000; // as launchers deliver
const MOST_BARS = 64;

export class Times {
  private readonly _first = new SplitBar();
  private readonly _legend = h('ul', { class: 'dl-legend', 'aria-label': 'Parts of the time' });
  private readonly _cause = h('p', { class: 'dl-cause' });
  private readonly _more = h('div', { class: 'dl-splits' });
  private readonly _fold: HTMLDetailsElement;
  private readonly _operations: Operations;
  readonly root: HTMLElement;
  private readonly _polling: Polling<unknown>;
  private readonly _sight: Sight;
  private readonly _changed = changes();
  private readonly _bars: SplitBar[] = [];
  private _look: Look | null = null;
  private _trial: number | null = null;

  constructor(private readonly _watch: Pick<Watch, 'act' | 'ask' | 'artifact'>) {
    this._operations = new Operations(_watch);
    this._fold = h('details', { class: 'dl-fold' }, h('summary', {}, 'Whole run and ranks'), this._more);
    this.root = h(
      'section',
      { class: 'dl-times', 'aria-label': 'Where time goes', hidden: true },
      this._first.root,
      this._legend,
      this._cause,
      this._fold,
      this._operations.root
    );
    this._polling = new Polling(
      () => this._watch.ask('/times', this._trial === null ? {} : { trial: this._trial }),
      answer => this._draw(answer as TimesOf),
      () => undefined, // an older service knows no times; a lost connection is shown elsewhere
      EVERY_MS
    );
    this._sight = new Sight(this.root, () => this.tick());
  }

  /** Follow the experiment; `chosen` is the selected trial of a search. */
  update(look: Look, chosen: number | null = null): void {
    this._look = look;
    const front = look.overview?.trials[0];
    this._operations.update(look, chosen ?? front?.index ?? 1);
    if (this._changed(look.number, chosen, look.connection, front?.state, front?.attempt)) {
      if (chosen !== this._trial) {
        this._trial = chosen;
        show(this.root, false);
      }
      this._want();
    }
  }

  /** Request the times while the training runs; call it about once a second. */
  tick(): void {
    if (this._look !== null && ticking(this._look) && (this.root.hidden || this._sight.visible)) {
      this._want();
    }
  }

  dispose(): void {
    this._operations.dispose();
    this._polling.dispose();
    this._sight.dispose();
  }

  private _want(): void {
    const look = this._look;
    const begun = (look?.overview?.attempts ?? []).length > 0;
    if (begun && look !== null && ['live', 'ended'].includes(look.connection)) {
      this._polling.want();
    }
  }

  private _draw(times: TimesOf): void {
    const [first, ...others] = barsOf(times);
    show(this.root, first !== undefined);
    if (first === undefined) {
      return;
    }
    this._first.update(first);
    setChildren(this._legend, legend(this._legend, partTexts(first)));
    setText(this._cause, times.sentence);
    show(this._cause, times.sentence !== '');
    const bars = others.slice(0, MOST_BARS);
    while (this._bars.length < bars.length) {
      this._bars.push(new SplitBar());
    }
    bars.forEach((bar, place) => this._bars[place]?.update(bar));
    setChildren(
      this._more,
      this._bars.slice(0, bars.length).map(bar => bar.root)
    );
    show(this._fold, bars.length > 0);
  }
}

/** One stacked bar with its name; its parts are also its text for screen readers. */
class SplitBar {
  private readonly _name = h('span', { class: 'dl-split-name' });
  private readonly _bar = h('div', { class: 'dl-split', role: 'img' });
  readonly root = h('div', { class: 'dl-split-row' }, this._name, this._bar);

  update(bar: Bar): void {
    setText(this._name, bar.name);
    const text = [...partTexts(bar).values()].join(', ');
    setAttribute(this._bar, 'aria-label', `${bar.name}: ${text}`);
    setAttribute(this._bar, 'title', text);
    const pieces = [...bar.shares].map(([part, share]) => {
      const piece = this._bar.querySelector<HTMLElement>(`[data-part='${part}']`) ?? h('div', { 'data-part': part });
      piece.style.width = `${(100 * share).toFixed(2)}%`;
      return piece;
    });
    setChildren(this._bar, pieces);
  }
}

/** Return an item for each part, with its colour and its share as text; existing ones are reused. */
function legend(list: Element, texts: ReadonlyMap<Part, string>): HTMLElement[] {
  return [...texts].map(([part, text]) => {
    const item = list.querySelector<HTMLElement>(`[data-part='${part}']`) ?? h('li', { 'data-part': part });
    setText(item, text);
    return item;
  });
}
