/** Source of data in JupyterLab: the service through the Jupyter server. No other file sends requests. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { PartialJSONObject } from '@lumino/coreutils';

import type { Message } from '../api/types';
import { ServiceError, StreamCut } from './source';
import type { ActionBody, Listener, Query, Source, Subscription } from './source';

const NO_SERVER = "Jupyter's server does not answer: look whether it still runs";
const NO_EXTENSION =
  "Daylight's part of the Jupyter server is not there: run jupyter server extension enable jupyter_ext, " +
  'then start the server again';
const NO_JSON = "this is no answer of Daylight's service: reload the page, you may have to log in again";

const OPENING_MS = 5_000; // time for a websocket to open: some proxies never answer

export class LabSource implements Source {
  constructor(private readonly _settings: ServerConnection.ISettings) {}

  get(path: string, query: Query = {}): Promise<unknown> {
    const asked = Object.entries(query).map(([name, value]) => [name, String(value)]);
    const url = URLExt.join(this._settings.baseUrl, 'daylight/api', path);
    return this._ask(url + URLExt.objectToQueryString(Object.fromEntries(asked) as PartialJSONObject), 'GET');
  }

  async file(path: string): Promise<Blob> {
    const url = URLExt.join(this._settings.baseUrl, 'daylight/api', path);
    const [response, file] = await this._fetch(url, 'GET', null, answer => answer.blob());
    if (!response.ok) {
      throw refusal(response.status, parsed(await file.text()));
    }
    return file;
  }

  post(path: string, asked?: ActionBody): Promise<unknown> {
    const url = URLExt.join(this._settings.baseUrl, 'daylight/api', path);
    return this._ask(url, 'POST', asked ? JSON.stringify(asked) : null);
  }

  /**
   * Return the output (a MIME bundle) that shows an experiment's current state; throws ServiceError.
   *
   * `captured` are the sentences about the submission, which only the notebook's output has.
   */
  async bundle(number: number, captured: readonly string[]): Promise<PartialJSONObject> {
    const url = URLExt.join(this._settings.baseUrl, 'daylight/bundle', String(number));
    return (await this._ask(url, 'POST', JSON.stringify({ captured }))) as PartialJSONObject;
  }

  /** Return the quickstart notebook; throws ServiceError. */
  quickstart(): Promise<unknown> {
    return this._ask(URLExt.join(this._settings.baseUrl, 'daylight/quickstart'), 'GET');
  }

  watch(after: number, experiment: number, listener: Listener): Subscription {
    const url = URLExt.join(this._settings.wsUrl, 'daylight/api/stream');
    return new Stream(this._socket(url + this._streamQuery(after, experiment)), listener);
  }

  /** Open a websocket; throws StreamCut if the browser refuses. */
  private _socket(url: string): WebSocket {
    try {
      return new this._settings.WebSocket(url);
    } catch (error) {
      throw new StreamCut(String(error));
    }
  }

  private _streamQuery(after: number, experiment: number): string {
    const { appendToken, token } = this._settings;
    return URLExt.objectToQueryString({ after, experiment, ...(appendToken && token ? { token } : {}) });
  }

  private async _ask(url: string, method: 'GET' | 'POST', body: string | null = null): Promise<unknown> {
    const [response, text] = await this._fetch(url, method, body, answer => answer.text());
    const said = parsed(text);
    if (!response.ok) {
      throw refusal(response.status, said);
    }
    if (said === undefined) {
      throw new ServiceError(0, NO_JSON);
    }
    return said;
  }

  private async _fetch<Read>(
    url: string,
    method: 'GET' | 'POST',
    body: string | null,
    read: (response: Response) => Promise<Read>
  ): Promise<[Response, Read]> {
    try {
      // The service's answers forbid caching, so that URLs need no cache-busting number.
      const response = await ServerConnection.makeRequest(url, { method, body, cache: 'default' }, this._settings);
      return [response, await read(response)];
    } catch {
      throw new ServiceError(0, NO_SERVER);
    }
  }
}

/** Websocket that calls a listener for each message, once at the end, and never after `close`. */
class Stream implements Subscription {
  private _over = false;
  private readonly _opening: ReturnType<typeof setTimeout>;

  constructor(
    private readonly _socket: WebSocket,
    private readonly _listener: Listener
  ) {
    this._opening = setTimeout(() => this._end(new StreamCut('the connection does not open')), OPENING_MS);
    _socket.onopen = () => this._opened();
    _socket.onmessage = (event: MessageEvent) => this._hear(event.data);
    _socket.onclose = event => this._end(cut(event.code, event.reason));
  }

  close(): void {
    this._over = true;
    clearTimeout(this._opening);
    this._socket.close();
  }

  private _opened(): void {
    clearTimeout(this._opening);
    if (!this._over) {
      this._listener.opened();
    }
  }

  private _hear(data: unknown): void {
    if (this._over) {
      return;
    }
    const message = typeof data === 'string' ? parsed(data) : undefined;
    if (typeof message === 'object' && message !== null) {
      this._listener.message(message as Message);
    } else {
      this._end(new ServiceError(0, NO_JSON));
    }
  }

  private _end(error: ServiceError): void {
    if (!this._over) {
      this.close();
      this._listener.closed(error);
    }
  }
}

/** Convert an unsuccessful answer to an error; the service's errors name their kind. */
export function refusal(status: number, body: unknown): ServiceError {
  const { error, message } = (typeof body === 'object' && body !== null ? body : {}) as Record<string, unknown>;
  if (typeof error === 'string' && typeof message === 'string') {
    return new ServiceError(status, message);
  }
  if (status === 404) {
    return new ServiceError(501, NO_EXTENSION); // 404 would mean that there is no such experiment
  }
  const words = typeof message === 'string' && message ? `: ${message}` : '';
  return new ServiceError(status, `Jupyter's server answered ${status}${words}`);
}

/** Convert a websocket's close code and reason to an error. */
export function cut(code: number, reason: string): StreamCut {
  return new StreamCut(reason || `the connection was cut (${code})`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
