/** Source of data through a widget's comm: the kernel forwards the service's answers when it is not busy. */

import type { Curves, Message } from '../api/types';
import type { Saved } from '../model/saved';
import { MessageLog } from './messagelog';
import { NO_ANSWER, Questions } from './questions';
import type { Answer } from './questions';
import { ServiceError } from './source';
import type { ActionBody, Listener, Query, Source, Subscription } from './source';

const SILENT_MS = 15_000; // the kernel sends a message every 5 s: after this time without one it does not respond
const PATIENCE_MS = 15_000; // time to wait for an answer; less if the kernel was silent before
const LITTLE_PATIENCE_MS = 3_000;
const HERE_MS = 20_000; // interval between messages that this page is open
const GONE = ['comm_live_update', 'comm:close']; // messages by which hosts report that a kernel restarts or is back

/** The part of a widget's model that is used. */
export interface Channel {
  get(name: 'saved'): Saved;
  send(content: unknown): void;
  on(event: string, listener: (content: FromKernel) => void): void;
  off(event: string, listener: (content: FromKernel) => void): void;
}

/** Message of the kernel; jupyter_ext/views/widget.py describes the protocol. */
export type FromKernel =
  | { type: 'messages'; after: number; messages: Message[] }
  | { type: 'beat' }
  | { type: 'closed'; status: number; message: string }
  | ({ type: 'answer' } & Answer);

export class CommSource implements Source {
  private readonly _log: MessageLog;
  private readonly _questions: Questions;
  private readonly _listening = new Set<Listening>();
  private _heardAt = -Infinity; // by a monotonic clock
  private _hopedAt = performance.now(); // time from which the kernel is given time to send its first message
  private _told = 0; // number of the newest message passed to a listener

  constructor(
    private readonly _channel: Channel,
    private readonly _number: number
  ) {
    this._log = new MessageLog(_channel.get('saved').overview.seq);
    this._questions = new Questions({
      send: question => _channel.send(question),
      known: path => this._known(path),
      silent: () => this._silent(),
      patience: () => (performance.now() - this._hopedAt < SILENT_MS ? PATIENCE_MS : LITTLE_PATIENCE_MS)
    });
    _channel.on('msg:custom', this._hear);
    _channel.on('change:saved', this._saved);
    GONE.forEach(event => _channel.on(event, this._gone));
  }

  async get(path: string, query: Query = {}): Promise<unknown> {
    const least = this._channel.get('saved').overview.seq; // the answer to a request includes everything up to here
    const answer = await this._questions.ask('GET', path, query);
    return path === `${this._path}/curves` ? including(least, answer as Curves) : answer;
  }

  async file(path: string): Promise<Blob> {
    const { base64 } = (await this._questions.ask('GET', path, {})) as { base64: string };
    return new Blob([Uint8Array.from(atob(base64), letter => letter.charCodeAt(0))]);
  }

  post(path: string, asked: ActionBody = {}): Promise<unknown> {
    return this._questions.ask('POST', path, asked);
  }

  watch(after: number, _experiment: number, listener: Listener): Subscription {
    const told: Listener = {
      opened: () => listener.opened(),
      message: message => {
        this._told = Math.max(this._told, message.seq);
        listener.message(message);
      },
      closed: error => {
        this._listening.delete(listening);
        listener.closed(error);
      }
    };
    const listening = new Listening(this._log, after, told, content => this._say(content), this._goneText);
    this._listening.add(listening);
    if (this._silent() === null) {
      queueMicrotask(() => listening.look());
    }
    return {
      close: () => {
        this._listening.delete(listening);
        listening.close();
      }
    };
  }

  dispose(): void {
    this._channel.off('msg:custom', this._hear);
    this._channel.off('change:saved', this._saved);
    GONE.forEach(event => this._channel.off(event, this._gone));
    this._questions.dispose();
    this._listening.forEach(each => each.close());
    this._listening.clear();
  }

  private readonly _hear = (said: FromKernel): void => {
    this._heardAt = this._hopedAt = performance.now();
    switch (said.type) {
      case 'answer':
        this._questions.answered(said);
        break;
      case 'messages':
        this._log.add(said.after, said.messages);
        break;
      case 'closed':
        this._fail(new ServiceError(said.status, said.message));
        break;
    }
    [...this._listening].forEach(each => each.look());
    this._questions.look();
  };

  private readonly _saved = (): void => {
    this._heardAt = this._hopedAt = performance.now();
    this._questions.look();
  };

  private readonly _gone = (): void => {
    this._heardAt = this._hopedAt = -Infinity;
    this._fail(new ServiceError(NO_ANSWER, this._goneText));
  };

  private _fail(error: ServiceError): void {
    [...this._listening].forEach(each => each.fail(error));
  }

  private _say(content: unknown): void {
    try {
      this._channel.send(content);
    } catch {
      // A message of the kernel is the only sign that it receives messages.
    }
  }

  private _silent(): string | null {
    return performance.now() - this._heardAt < SILENT_MS ? null : this._goneText;
  }

  private get _goneText(): string {
    return `the kernel of this view is gone or does not answer; %dl show ${this._number} shows it again`;
  }

  private get _path(): string {
    return `/experiments/${this._number}`;
  }

  /**
   * Return the answer that the kernel has stored in the model, for use while it is busy; undefined if newer data was
   * received.
   */
  private _known(path: string): unknown {
    const { overview, curves } = this._channel.get('saved');
    if (overview.seq < Math.max(this._log.base, this._told)) {
      return undefined;
    }
    switch (path) {
      case this._path:
        return overview;
      case `${this._path}/curves`:
        return curves ? including(overview.seq, curves) : undefined; // the kernel fetches the curves after the overview
      default:
        return undefined;
    }
  }
}

/** Return curves marked as complete up to report number `seq`, even if no report has that number. */
function including(seq: number, curves: Curves): Curves {
  return { ...curves, seq: Math.max(seq, curves.seq) };
}

/** Subscription of one listener, which receives each message once; missing messages are requested again. */
class Listening {
  private readonly _here: ReturnType<typeof setInterval>;
  private _silence: ReturnType<typeof setTimeout> | undefined;
  private _opened = false;
  private _closed = false;
  private _asked = false;

  constructor(
    private readonly _log: MessageLog,
    private _seen: number,
    private readonly _listener: Listener,
    private readonly _say: (content: unknown) => void,
    private readonly _goneText: string
  ) {
    this._here = setInterval(() => this._sign(), HERE_MS);
    this._expect();
    this._sign();
  }

  /** Check for new messages after the kernel has sent something. */
  look(): void {
    this._expect();
    if (!this._opened && !this._closed) {
      this._opened = true;
      this._listener.opened();
    }
    const fresh = this._log.after(this._seen);
    if (fresh === null && !this._asked) {
      this._sign();
    }
    this._asked = fresh === null;
    for (const message of fresh ?? []) {
      if (this._closed) {
        return;
      }
      this._seen = message.seq;
      this._listener.message(message);
    }
  }

  fail(error: ServiceError): void {
    if (!this._closed) {
      this.close();
      this._listener.closed(error);
    }
  }

  close(): void {
    this._closed = true;
    clearInterval(this._here);
    clearTimeout(this._silence);
  }

  /** Tell the kernel that this page is open, and up to which message it is complete. */
  private _sign(): void {
    this._asked = this._log.after(this._seen) === null;
    this._say({ type: this._asked ? 'watch' : 'here', after: this._seen });
  }

  private _expect(): void {
    clearTimeout(this._silence);
    if (!this._closed) {
      this._silence = setTimeout(() => this.fail(new ServiceError(NO_ANSWER, this._goneText)), SILENT_MS);
    }
  }
}
