/** HTTP client of the page: the API is below the page's own URL. No other file of the page sends requests. */

import { ServiceError } from '../service/source';
import type { ActionBody, Query, Source } from '../service/source';

const PATIENCE_MS = 15_000;
const LONG_MS = 24 * 3600_000; // for a file, which may be large
const NO_ANSWER = 'nothing answers here: the service, JupyterHub or the network is away';
const NO_SERVICE = "JupyterHub answers, Daylight's service does not";
const LOGGED_OUT = 'you are logged out: reload the page to log in again';

export type Method = 'GET' | 'PUT' | 'POST' | 'DELETE';

export interface Requester {
  /** Return the JSON at a path such as `/queue`; throws ServiceError. */
  ask(method: Method, path: string, query?: Query, body?: unknown): Promise<unknown>;

  /** Return the text at a path, such as a CSV file; throws ServiceError. */
  text(path: string, query: Query): Promise<string>;
}

export class PageSource implements Requester, Source {
  /** `token` is that of a single user's service; behind a hub, the hub's cookies authenticate the user. */
  constructor(
    private readonly _base: string,
    private readonly _token: string | null
  ) {}

  async ask(method: Method, path: string, query: Query = {}, body?: unknown): Promise<unknown> {
    const [response, text] = await this._fetch(this._url(path, query), method, body, answer => answer.text());
    const said = parsed(text);
    if (!response.ok) {
      throw refusal(response, said);
    }
    if (said === undefined) {
      throw new ServiceError(401, LOGGED_OUT); // most likely a login page
    }
    return said;
  }

  async text(path: string, query: Query): Promise<string> {
    const [response, text] = await this._fetch(this._url(path, query), 'GET', undefined, answer => answer.text());
    if (!response.ok) {
      throw refusal(response, parsed(text));
    }
    return text;
  }

  get(path: string, query: Query = {}): Promise<unknown> {
    return this.ask('GET', path, query);
  }

  post(path: string, asked?: ActionBody): Promise<unknown> {
    return this.ask('POST', path, {}, asked);
  }

  async file(path: string): Promise<Blob> {
    const read = (answer: Response): Promise<Blob> => answer.blob();
    const [response, file] = await this._fetch(this._url(path, {}), 'GET', undefined, read, LONG_MS);
    if (!response.ok) {
      throw refusal(response, parsed(await file.text()));
    }
    return file;
  }

  /** Return null: a websocket can carry neither a token nor the proof that this page has opened it. */
  watch(): null {
    return null;
  }

  private _url(path: string, query: Query): URL {
    const url = new URL(`api${path}`, this._base);
    for (const [name, value] of Object.entries(query)) {
      url.searchParams.set(name, String(value));
    }
    return url;
  }

  private async _fetch<Read>(
    url: URL,
    method: Method,
    body: unknown,
    read: (response: Response) => Promise<Read>,
    patience = PATIENCE_MS
  ): Promise<[Response, Read]> {
    try {
      const response = await fetch(url, {
        method,
        headers: headersFor(this._token, document.cookie),
        body: body === undefined ? null : JSON.stringify(body),
        credentials: 'same-origin',
        redirect: 'manual', // a redirect leads to a login page, which the page cannot read
        signal: AbortSignal.timeout(patience)
      });
      return [response, await read(response)];
    } catch {
      throw new ServiceError(0, NO_ANSWER);
    }
  }
}

/** Return a request's headers: a token or, for a hub, the XSRF token that proves that this page sends the request. */
export function headersFor(token: string | null, cookies: string): Record<string, string> {
  const xsrf = /(?:^|; )_xsrf=([^;]*)/.exec(cookies)?.[1];
  return {
    'Content-Type': 'application/json',
    ...(token ? { Authorization: `Bearer ${token}` } : {}),
    ...(xsrf ? { 'X-XSRFToken': decodeURIComponent(xsrf) } : {})
  };
}

function refusal(response: Response, body: unknown): ServiceError {
  if (response.type === 'opaqueredirect') {
    return new ServiceError(401, LOGGED_OUT);
  }
  const { error, message } = (typeof body === 'object' && body !== null ? body : {}) as Record<string, unknown>;
  if (typeof error === 'string' && typeof message === 'string') {
    return new ServiceError(response.status, message);
  }
  return new ServiceError(response.status, `${NO_SERVICE} (HTTP ${response.status})`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
