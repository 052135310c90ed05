/** Interface by which views reach the service in any host. Paths are those of the API without `/api`. */

import type { Message } from '../api/types';

export type Query = Record<string, string | number>;

/** Body of an action's request. */
export type ActionBody = Record<
  string,
  | string
  | number
  | readonly string[]
  | readonly number[]
  | null
  | Readonly<Record<string, string | number | boolean | null>>
>;

export interface Source {
  /** Return the JSON at a path such as `/experiments/12`; throws ServiceError. */
  get(path: string, query?: Query): Promise<unknown>;
  /** Return the file at a path, such as `/experiments/12/export.csv`; throws ServiceError. */
  file(path: string): Promise<Blob>;
  /** Perform an action, such as `/experiments/12/stop`, with `asked` as its body; throws ServiceError. */
  post(path: string, asked?: ActionBody): Promise<unknown>;
  /**
   * Call the listener with every message after `after`, until the returned subscription is closed or `closed` was
   * called. Returns null if this host has no streams; the experiment is then polled.
   */
  watch(after: number, experiment: number, listener: Listener): Subscription | null;
}

export interface Listener {
  opened(): void;
  message(message: Message): void;
  /** Handle the end of the stream; no more calls follow. */
  closed(error: ServiceError): void;
}

export interface Subscription {
  close(): void;
}

/** Error of the service, or of reaching it: `status` 404 not found, 503 not reachable, 0 no answer. */
export class ServiceError extends Error {
  constructor(
    readonly status: number,
    message: string
  ) {
    super(message);
    this.name = 'ServiceError';
  }
}

/** Error: a stream was interrupted, or could not be opened; the service itself may still be reachable. */
export class StreamCut extends ServiceError {
  constructor(message: string) {
    super(0, message);
  }
}

/** Return the text of an error. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
