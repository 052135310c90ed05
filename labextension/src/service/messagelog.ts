/** Newest messages of one experiment without gaps, from which new or interrupted listeners catch up. */

import type { Message } from '../api/types';

const LONGEST = 2_000; // messages

export class MessageLog {
  private _messages: Message[] = [];

  /** `base` is the sequence number after which messages are stored. */
  constructor(private _base: number) {}

  /** Sequence number after which all messages are stored. */
  get base(): number {
    return this._base;
  }

  /** Sequence number of the newest stored message. */
  get end(): number {
    return this._messages.at(-1)?.seq ?? this._base;
  }

  /** Add all messages after `after`; if they do not continue the stored ones, discard these. */
  add(after: number, messages: readonly Message[]): void {
    if (after !== this.end) {
      this._base = after;
      this._messages = [];
    }
    this._messages.push(...messages);
    const surplus = this._messages.splice(0, Math.max(0, this._messages.length - LONGEST));
    this._base = surplus.at(-1)?.seq ?? this._base;
  }

  /** Return the messages after `seen`; null if some of them are not stored. */
  after(seen: number): Message[] | null {
    return seen < this._base ? null : this._messages.filter(message => message.seq > seen);
  }
}
