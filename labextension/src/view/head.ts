/** Header of a view: number, name, state with its reason, slots, backend and duration. */

import { ended, stateOf } from '../model/overview';
import { duration, elapsed, gangText, stateText } from '../model/text';
import type { Look } from '../service/watch';
import { changes, h, setAttribute, setText } from './dom';

const WORDS: Record<string, string> = { connecting: 'connecting', lost: 'unknown', gone: 'not found' };

export class Head {
  private readonly _number = h('span', { class: 'dl-number' });
  private readonly _name = h('span', { class: 'dl-name' });
  private readonly _chip = h('span', { role: 'status', class: 'dl-chip' });
  private readonly _facts = h('span', { class: 'dl-facts' });
  private readonly _changed = changes();
  readonly root = h(
    'div',
    { class: 'dl-head' },
    h('span', { class: 'dl-title' }, this._number, ' ', this._name),
    h('span', { class: 'dl-head-facts' }, this._chip, this._facts)
  );

  update(look: Look): void {
    if (!this._changed(look.overview, look.number, look.connection)) {
      return;
    }
    const overview = look.overview;
    const state = overview ? stateOf(overview) : look.connection;
    setText(this._number, `#${look.number}`);
    setText(this._name, overview?.experiment.name ?? '');
    setAttribute(this._name, 'title', overview?.experiment.name ?? '');
    setText(this._chip, overview ? stateText(overview) : (WORDS[look.connection] ?? ''));
    setAttribute(this._chip, 'data-state', state);
    this.tick(look);
  }

  /** Update the duration. */
  tick(look: Look): void {
    const overview = look.overview;
    // Without a connection, the duration ends with the last message.
    const now = look.connection === 'live' || look.connection === 'connecting' ? Date.now() / 1000 : look.at;
    setText(
      this._facts,
      overview ? `${gangText(overview)} \u00b7 ${duration(Math.max(0, elapsed(overview, now)))}` : ''
    );
  }
}

/** Return whether the duration still grows. */
export function ticking(look: Look): boolean {
  return look.overview !== null && !ended(look.overview) && look.connection === 'live';
}
