/** The newest messages of one experiment, without a gap: who comes late, or was not listened to, catches up here. */

import type { Message } from '../api/types';

const LONGEST = 2_000; // messages

export class MessageLog {
  private _messages: Message[] = [];

  /** `base`: all that is known by now is above it. */
  constructor(private _base: number) {}

  /** Everything after this is here. */
  get base(): number {
    return this._base;
  }

  /** The newest that is here. */
  get end(): number {
    return this._messages.at(-1)?.seq ?? this._base;
  }

  /** Take in all that came after `after`: it continues what is here, or begins anew. */
  add(after: number, messages: readonly Message[]): void {
    if (after !== this.end) {
      this._base = after;
      this._messages = [];
    }
    this._messages.push(...messages);
    const surplus = this._messages.splice(0, Math.max(0, this._messages.length - LONGEST));
    this._base = surplus.at(-1)?.seq ?? this._base;
  }

  /** What came after `seen`; null where some of it is missing. */
  after(seen: number): Message[] | null {
    return seen < this._base ? null : this._messages.filter(message => message.seq > seen);
  }
}
