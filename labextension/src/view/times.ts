/** Where the time of a training goes: a stacked bar with its legend, the main cause, bars by rank, operations. */

import type { Times as TimesOf } from '../api/types';
import { barsOf, partTexts, type Bar, type Part } from '../model/times';
import type { Look, Watch } from '../service/watch';
import { h, setAttribute, setChildren, setText, show } from './dom';
import { Follower } from './follower';
import { Operations } from './operations';

const EVERY_MS = 2000; // as launchers deliver
const MOST_BARS = 64;

export class Times {
  private readonly _first = new SplitBar();
  private readonly _legend = h('ul', { class: 'dl-legend', 'aria-label': 'Parts of the time' });
  private readonly _cause = h('p', { class: 'dl-cause' });
  private readonly _more = h('div', { class: 'dl-splits' });
  private readonly _fold: HTMLDetailsElement;
  private readonly _operations: Operations;
  private readonly _follower: Follower;
  private readonly _bars: SplitBar[] = [];
  readonly root: HTMLElement;

  constructor(watch: Pick<Watch, 'act' | 'ask' | 'artifact'>) {
    this._operations = new Operations(watch);
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
    this._follower = new Follower(this.root, watch, '/times', answer => this._draw(answer as TimesOf), EVERY_MS);
  }

  /** Follow the experiment; `chosen` is the selected trial of a search. */
  update(look: Look, chosen: number | null = null): void {
    this._operations.update(look, chosen ?? look.overview?.trials[0]?.index ?? 1);
    this._follower.update(look, chosen);
  }

  tick(): void {
    this._follower.tick();
  }

  dispose(): void {
    this._operations.dispose();
    this._follower.dispose();
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
