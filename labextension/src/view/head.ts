/** Header of a view: number, name, state with its reason, slots, backend, duration, start and end. */

import type { Overview } from '../api/types';
import { ended, stateOf } from '../model/overview';
import { spanText, spanTitle, whenText } from '../model/dates';
import { duration, elapsed, gangText, stateText } from '../model/text';
import type { Look } from '../service/watch';
import { changes, h, setAttribute, setText } from './dom';

const UNDO_S = 86_400; // as in `kernel_backend`: a day
const WORDS: Record<string, string> = { connecting: 'connecting', lost: 'unknown', gone: 'not found' };

export class Head {
  private readonly _number = h('span', { class: 'dl-number' });
  private readonly _name = h('span', { class: 'dl-name' });
  private readonly _chip = h('span', { role: 'status', class: 'dl-chip' });
  private readonly _facts = h('span', { class: 'dl-facts' });
  private readonly _span = h('span', { class: 'dl-facts dl-span' });
  private readonly _changed = changes();
  readonly root = h(
    'div',
    { class: 'dl-head' },
    h('span', { class: 'dl-title' }, this._number, ' ', this._name),
    h('span', { class: 'dl-head-facts' }, this._chip, this._facts, this._span)
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
    // A screen reader hears of another state, but not of each phase and place in the queue.
    setAttribute(this._chip, 'aria-live', this._chip.getAttribute('data-state') === state ? 'off' : 'polite');
    setText(this._chip, overview ? stateText(overview) : (WORDS[look.connection] ?? ''));
    setAttribute(this._chip, 'data-state', state);
    setAttribute(this._span, 'title', overview ? spanTitle(overview) : '');
    this.tick(look);
  }

  /** Update the duration, and how long ago it started. */
  tick(look: Look): void {
    const overview = look.overview;
    // Without a connection, the duration ends with the last message.
    const now = look.connection === 'live' || look.connection === 'connecting' ? Date.now() / 1000 : look.at;
    setText(
      this._facts,
      overview ? `${gangText(overview)} \u00b7 ${duration(Math.max(0, elapsed(overview, now)))}` : ''
    );
    setText(this._span, overview ? timesText(overview, Date.now() / 1000) : '');
  }
}

function timesText(overview: Overview, now: number): string {
  const { deleted_at } = overview.experiment;
  return deleted_at === null
    ? spanText(overview, now)
    : `Undelete brings it back until ${whenText(deleted_at + UNDO_S, now)}`;
}

/** Return whether the duration still grows. */
export function ticking(look: Look): boolean {
  return look.overview !== null && !ended(look.overview) && look.connection === 'live';
}
