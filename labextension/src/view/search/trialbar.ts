/** Bar of a search's trials: stopped early, failed, done, running, resting and to come, with an estimate. */

import type { SearchStatus } from '../../api/types';
import { searchProgressText } from '../../model/searchprogress';
import { trialParts } from '../../model/trialparts';
import { h, setAttribute, setChildren, setText } from '../dom';

export class TrialBar {
  private readonly _bar = h('div', { class: 'dl-trial-bar', role: 'img' });
  private readonly _text = h('p', { class: 'dl-dim' });
  readonly root = h('div', {}, this._bar, this._text);

  /** Draw the trials; `slots` is the number of slots of each, null without a connection: nothing is estimated then. */
  update(status: SearchStatus, slots: number | null): void {
    const parts = trialParts(status);
    setText(this._text, searchProgressText(status, slots));
    setAttribute(this._bar, 'aria-label', `Trials: ${parts.map(part => part.text).join(', ') || 'none yet'}`);
    setChildren(
      this._bar,
      parts.map(({ kind, count, text }) => {
        const part = h('div', { class: 'dl-trial-part', 'data-kind': kind, title: text });
        part.style.flexGrow = String(count);
        return part;
      })
    );
  }
}
