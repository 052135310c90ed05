/** The Lab's source against a real small server: addresses, errors in words, and a stream's one end. */

import { createServer } from 'http';
import type { IncomingMessage, Server, ServerResponse } from 'http';
import type { AddressInfo } from 'net';

import { ServerConnection } from '@jupyterlab/services';

import { cut, LabSource, refusal } from '../src/service/request';
import { ServiceError, StreamCut } from '../src/service/source';
import type { Listener, Subscription } from '../src/service/source';
import { reported } from './fakes';

interface Asked {
  method: string;
  url: string;
  authorization: string;
  body: string;
}

let server: Server;
let asked: Asked[];
let answer: { status: number; body: string };

async function hear(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const parts: Uint8Array[] = [];
  for await (const part of request) {
    parts.push(part as Uint8Array);
  }
  const { method = '', url = '', headers } = request;
  asked.push({ method, url, authorization: headers.authorization ?? '', body: Buffer.concat(parts).toString() });
  response.writeHead(answer.status, { 'Content-Type': 'application/json' });
  response.end(answer.body);
}

function source(options: Partial<ServerConnection.ISettings> = {}): LabSource {
  const { port } = server.address() as AddressInfo;
  const baseUrl = `http://127.0.0.1:${port}/user/ada/`;
  return new LabSource(ServerConnection.makeSettings({ baseUrl, token: 'secret', ...options }));
}

async function failure(promise: Promise<unknown>): Promise<ServiceError> {
  const error: unknown = await promise.then(
    () => null,
    (reason: unknown) => reason
  );
  expect(error).toBeInstanceOf(ServiceError);
  return error as ServiceError;
}

beforeEach(async () => {
  asked = [];
  answer = { status: 200, body: '{}' };
  server = createServer((request, response) => void hear(request, response));
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
});

afterEach(async () => {
  await new Promise(resolve => server.close(resolve));
});

test('what is asked goes below the base URL, with the token and exactly its query', async () => {
  answer.body = '{"experiments": []}';
  const found = await source().get('/experiments', { search: 'a&b c', limit: 50 });
  expect(found).toEqual({ experiments: [] });
  expect(asked).toEqual([
    {
      method: 'GET',
      url: '/user/ada/daylight/api/experiments?search=a%26b%20c&limit=50',
      authorization: 'token secret',
      body: ''
    }
  ]);
});

test('a file is asked for by its path, and comes as it is', async () => {
  answer.body = 'bytes';
  const file = await source().file('/experiments/12/trials/7/artifacts/a%20table');
  expect(await file.text()).toBe('bytes');
  expect(asked[0]?.url).toBe('/user/ada/daylight/api/experiments/12/trials/7/artifacts/a%20table');
  answer = { status: 404, body: '{"error": "NotFound", "message": "trial 12.7 has none", "details": {}}' };
  const error = await failure(source().file('/experiments/12/trials/7/artifacts/net'));
  expect([error.status, error.message]).toEqual([404, 'trial 12.7 has none']);
});

test('a verb is a POST, and a bundle is told the sentences of the submission', async () => {
  await source().post('/experiments/12/stop');
  await source().post('/experiments/12/extend', { trials: 100 });
  await source().bundle(12, ['two cells were taken along']);
  expect(asked.map(({ method, url, body }) => [method, url, body])).toEqual([
    ['POST', '/user/ada/daylight/api/experiments/12/stop', ''],
    ['POST', '/user/ada/daylight/api/experiments/12/extend', '{"trials":100}'],
    ['POST', '/user/ada/daylight/bundle/12', '{"captured":["two cells were taken along"]}']
  ]);
});

test('an error of the service keeps its status and its words', async () => {
  answer = { status: 503, body: '{"error": "ServiceUnreachable", "message": "start it", "details": {}}' };
  const error = await failure(source().get('/nodes'));
  expect([error.status, error.message]).toEqual([503, 'start it']);
});

test('a server that is gone is no answer at all, in a sentence', async () => {
  const gone = source();
  await new Promise(resolve => server.close(resolve));
  const error = await failure(gone.get('/nodes'));
  expect(error.status).toBe(0);
  expect(error.message).toContain("Jupyter's server does not answer");
});

test('a page instead of JSON, as of somebody who has to log in again, is no answer', async () => {
  answer.body = '<!doctype html><title>Log in</title>';
  const error = await failure(source().get('/nodes'));
  expect([error.status, error.message.includes('log in')]).toEqual([0, true]);
});

test('no such page is not mistaken for no such experiment', () => {
  const ours = refusal(404, { error: 'NotFound', message: 'there is no experiment #12' });
  expect([ours.status, ours.message]).toEqual([404, 'there is no experiment #12']);
  const jupyters = refusal(404, { message: 'Not Found', reason: null });
  expect(jupyters.status).toBe(501);
  expect(jupyters.message).toContain('jupyter server extension enable');
});

test('an answer of whoever stands before the server is told with its status', () => {
  expect(refusal(502, undefined).message).toBe("Jupyter's server answered 502");
  expect(refusal(403, { message: 'Forbidden' }).message).toBe("Jupyter's server answered 403: Forbidden");
});

test('the words of a closing become the words of the error', () => {
  expect(cut(1001, "Daylight's service has gone").message).toBe("Daylight's service has gone");
  expect(cut(1006, '').message).toBe('the connection was cut (1006)');
});

/** Says and hears what a browser's websocket would. */
class Socket {
  static last: Socket;
  onopen: () => void = () => undefined;
  onmessage: (event: { data: unknown }) => void = () => undefined;
  onclose: (event: { code: number; reason: string }) => void = () => undefined;
  closed = 0;

  constructor(readonly url: string) {
    Socket.last = this;
  }

  close(): void {
    this.closed += 1;
  }
}

const open: Subscription[] = [];
afterEach(() => open.splice(0).forEach(each => each.close()));

function watching(options: Partial<ServerConnection.ISettings> = {}): { told: string[]; close: () => void } {
  const told: string[] = [];
  const listener: Listener = {
    opened: () => told.push('opened'),
    message: message => told.push(`message ${message.seq}`),
    closed: error => told.push(`closed: ${error.message}`)
  };
  const WebSocket = Socket as unknown as typeof globalThis.WebSocket;
  const subscription = source({ WebSocket, ...options }).watch(7, 12, listener);
  open.push(subscription);
  return { told, close: () => subscription.close() };
}

test('a stream begins after what is known, with the token only where the Lab appends it', () => {
  watching({ wsUrl: 'ws://there/user/ada/', appendToken: false });
  expect(Socket.last.url).toBe('ws://there/user/ada/daylight/api/stream?after=7&experiment=12');
  watching({ wsUrl: 'ws://there/user/ada/', appendToken: true });
  expect(Socket.last.url).toBe('ws://there/user/ada/daylight/api/stream?after=7&experiment=12&token=secret');
});

test('a stream tells what comes, and its end once', () => {
  const { told } = watching();
  Socket.last.onopen();
  Socket.last.onmessage({ data: JSON.stringify(reported(8)) });
  Socket.last.onclose({ code: 1001, reason: 'gone' });
  Socket.last.onclose({ code: 1006, reason: '' });
  Socket.last.onmessage({ data: JSON.stringify(reported(9)) });
  expect(told).toEqual(['opened', 'message 8', 'closed: gone']);
});

test('a stream that does not open in time has ended', () => {
  jest.useFakeTimers();
  const { told } = watching();
  jest.advanceTimersByTime(5_100);
  Socket.last.onopen();
  expect([told, Socket.last.closed]).toEqual([['closed: the connection does not open'], 1]);
  watching().close();
  const opened = watching();
  Socket.last.onopen();
  jest.advanceTimersByTime(60_000);
  expect(opened.told).toEqual(['opened']);
  jest.useRealTimers();
});

test('a stream that the browser refuses to try is a cut', () => {
  const WebSocket = function refuse(): void {
    throw new DOMException('insecure', 'SecurityError');
  } as unknown as typeof globalThis.WebSocket;
  expect(() => watching({ WebSocket })).toThrow(StreamCut);
});

test('who closes a stream hears nothing more of it, not even its end', () => {
  const { told, close } = watching();
  close();
  Socket.last.onopen();
  Socket.last.onmessage({ data: JSON.stringify(reported(8)) });
  Socket.last.onclose({ code: 1000, reason: '' });
  expect(told).toEqual([]);
  expect(Socket.last.closed).toBe(1);
});

test('what is no message ends the stream', () => {
  const { told } = watching();
  Socket.last.onmessage({ data: 'hello' });
  expect(told).toHaveLength(1);
  expect(told[0]).toContain('closed: this is no answer');
  expect(Socket.last.closed).toBe(1);
});
