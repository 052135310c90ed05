/** How a view reaches the service, whichever host it is in. Paths are those of the API without `/api`. */

import type { Message } from '../api/types';

export type Query = Record<string, string | number>;

/** The body of an act. */
export type ActionBody = Record<string, string | number | readonly string[] | null>;

export interface Source {
  /** The JSON at a path such as `/experiments/12`; throws ServiceError. */
  get(path: string, query?: Query): Promise<unknown>;
  /** The bytes of what a trial has kept; throws ServiceError. */
  artifact(number: number, trial: number, name: string): Promise<Uint8Array<ArrayBuffer>>;
  /** The reports of a trial, or the trials of a search where it is null, as CSV; throws ServiceError. */
  csv(number: number, trial: number | null): Promise<string>;
  /** Act, such as `/experiments/12/stop`, with what is `asked` for; throws ServiceError. */
  post(path: string, asked?: ActionBody): Promise<unknown>;
  /** Hear every message after `after`, until the answer's `close` is called or `closed` was. */
  watch(after: number, experiment: number, listener: Listener): Subscription;
}

export interface Listener {
  opened(): void;
  message(message: Message): void;
  /** The stream has ended; nothing more comes. */
  closed(error: ServiceError): void;
}

export interface Subscription {
  close(): void;
}

/** What the service answered, or why it could not: `status` 404 no such thing, 503 not reachable, 0 no answer at all. */
export class ServiceError extends Error {
  constructor(
    readonly status: number,
    message: string
  ) {
    super(message);
    this.name = 'ServiceError';
  }
}

/** A stream that was cut, or that never opened: whether the service is there is for its answers to say. */
export class StreamCut extends ServiceError {
  constructor(message: string) {
    super(0, message);
  }
}
