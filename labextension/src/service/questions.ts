/** Requests that a page sends through its kernel, which answers after the running cell. */

import { ServiceError } from './source';
import type { ActionBody } from './source';

const BUSY_MS = 4_000; // time without an answer after which the kernel counts as busy
const FORGOTTEN_MS = 60_000; // time after which a request is sent again although an earlier one was not answered
const BUSY = 'the kernel is busy; this answer comes when it is done';

export const NO_ANSWER = 408; // status whose message is shown, as it says what to do

/** The kernel's message `{"type": "answer", ...}`. */
export interface Answer {
  id: number;
  status: number;
  body: unknown;
}

/** Interface to the kernel. */
export interface Kernel {
  /** Send a request; may throw. */
  send(question: unknown): void;
  /** Return a stored answer to a path if it is recent enough; else undefined. */
  known(path: string): unknown;
  /** Return why no answer can be expected; null while the kernel responds. */
  silent(): string | null;
  /** Return the milliseconds to wait for an answer. */
  patience(): number;
}

interface Question {
  readonly path: string;
  readonly method: 'GET' | 'POST';
  overdue: boolean; // unanswered for so long that the kernel must be busy
  readonly timers: ReturnType<typeof setTimeout>[];
  resolve(body: unknown): void;
  reject(error: ServiceError): void;
}

export class Questions {
  private readonly _open = new Map<number, Question>();
  // Other pages receive these answers, too: a random start keeps the numbers unique.
  private _next = Math.floor(Math.random() * 2 ** 40);

  constructor(private readonly _kernel: Kernel) {}

  ask(method: 'GET' | 'POST', path: string, query: ActionBody = {}): Promise<unknown> {
    const asked = [...this._open.values()].filter(question => question.overdue);
    if (method === 'GET' && asked.length > 0 && this._kernel.silent() === null) {
      const known = this._kernel.known(path);
      if (known !== undefined) {
        return Promise.resolve(known);
      }
      if (asked.some(question => question.path === path)) {
        return Promise.reject(this._noAnswer()); // a busy kernel gets one request per path, not a hundred
      }
    }
    return new Promise((resolve, reject) => {
      const id = this._next++;
      const timers = [
        setTimeout(() => this._late(id), BUSY_MS),
        setTimeout(() => reject(this._noAnswer()), this._kernel.patience()),
        setTimeout(() => this._open.delete(id), FORGOTTEN_MS)
      ];
      this._open.set(id, { path, method, overdue: false, timers, resolve, reject });
      try {
        this._kernel.send({ id, method, path, query });
      } catch {
        this._close(id);
        reject(this._noAnswer());
      }
    });
  }

  /** Handle an answer of the kernel, to a request of this page or of another one. */
  answered({ id, status, body }: Answer): void {
    const question = this._open.get(id);
    if (question === undefined) {
      return;
    }
    this._close(id);
    if (status < 400) {
      question.resolve(body);
    } else {
      question.reject(new ServiceError(status, messageIn(body) ?? `HTTP ${status}`));
    }
  }

  /** Check whether newly stored data answers open requests. */
  look(): void {
    if (this._kernel.silent() !== null) {
      return;
    }
    for (const question of this._open.values()) {
      const known = question.method === 'GET' && question.overdue ? this._kernel.known(question.path) : undefined;
      if (known !== undefined) {
        question.resolve(known); // the request stays open: until it is answered, the kernel is busy
      }
    }
  }

  dispose(): void {
    for (const id of [...this._open.keys()]) {
      this._close(id);
    }
  }

  private _late(id: number): void {
    const question = this._open.get(id);
    if (question) {
      question.overdue = true; // set by the timer itself, as comparing times may be off by rounding
      this.look();
    }
  }

  private _noAnswer(): ServiceError {
    return new ServiceError(NO_ANSWER, this._kernel.silent() ?? BUSY);
  }

  private _close(id: number): void {
    this._open.get(id)?.timers.forEach(clearTimeout);
    this._open.delete(id);
  }
}

function messageIn(body: unknown): string | null {
  const found = typeof body === 'object' && body !== null && 'message' in body ? body.message : null;
  return typeof found === 'string' ? found : null;
}
