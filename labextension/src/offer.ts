/** Offer of a cell that can replace a rejected one, with a button that inserts it. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';

import { button, h } from './view/dom';

export const OFFER_TYPE = 'application/vnd.daylight.cell+json'; // jupyter_ext/submit/replacement_cell.py
const RANK = 40; // text/plain has 110
const SAID = 'The same as functions of your own names. Ctrl+Z in the cell undoes it.';

/** Function that replaces the text of the cell that contains a node; returns false if no cell there can be changed. */
export type Replace = (node: Node, text: string) => boolean;

export function offerFactory(replace: Replace): IRenderMime.IRendererFactory {
  return {
    safe: true, // the cell is inserted as text, and runs only when the user runs it
    mimeTypes: [OFFER_TYPE],
    defaultRank: RANK,
    createRenderer: () => new OfferRenderer(replace)
  };
}

class OfferRenderer extends Widget implements IRenderMime.IRenderer {
  constructor(private readonly _replace: Replace) {
    super();
    this.addClass('dl-output');
  }

  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const cell = textIn(model.data[OFFER_TYPE]);
    const plain = model.data['text/plain'];
    const text = cell ?? (typeof plain === 'string' ? plain : '');
    this.node.replaceChildren(cell === null ? h('pre', {}, text) : this._offer(cell));
    return Promise.resolve();
  }

  private _offer(cell: string): HTMLElement {
    const said = h('span', { class: 'dl-dim', role: 'status' }, SAID);
    const pressed = (): void => {
      const done = this._replace(this.node, cell);
      said.textContent = done ? 'Replaced: run the cell.' : 'This notebook cannot be changed: copy the text.';
    };
    return h(
      'section',
      { class: 'dl-sheet dl-view dl-offer', 'aria-label': 'Finished cell' },
      h('div', { class: 'dl-offer-head' }, button('Replace cell', pressed), said),
      h('pre', { class: 'dl-offer-cell' }, cell)
    );
  }
}

/** Return the text of the cell in a MIME bundle; null if there is none. */
export function textIn(value: unknown): string | null {
  const cell = (value as { cell?: unknown } | null | undefined)?.cell;
  return typeof cell === 'string' ? cell : null;
}
