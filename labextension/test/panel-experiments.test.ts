/** The panel's experiments: when they are asked for, and what becomes of answers, errors and choices. */

import type { Overview } from '../src/api/types';
import { Experiments } from '../src/panel/experiments';
import { LiveSettings } from '../src/panel/settings';
import { ServiceError } from '../src/service/source';
import type { Query, Source, Subscription } from '../src/service/source';
import { done, overview } from './fakes';

/** A service with these experiments; its answers to the list wait while `held`. */
class Service implements Source {
  found: Overview[] | ServiceError = [overview()];
  readonly asked: string[] = [];
  readonly queries: Query[] = [];
  held: Promise<void> | null = null;
  disk: string[] | null = [];

  async get(path: string, query: Query = {}): Promise<unknown> {
    this.asked.push(path);
    if (path === '/nodes') {
      return { nodes: [{ name: 'here', kind: 'cpu', slots: 2, used: 1, devices: [], healthy: true }] };
    }
    if (path === '/disk') {
      if (this.disk === null) {
        throw new ServiceError(502, 'away');
      }
      return { users: [], experiments: [], shared: {}, free: 1, size: 100, warnings: this.disk };
    }
    this.queries.push(query);
    const found = this.found;
    await this.held;
    if (found instanceof ServiceError) {
      throw found;
    }
    return { experiments: found };
  }

  async post(path: string): Promise<unknown> {
    this.asked.push(path);
    return Promise.resolve(overview());
  }

  csv(): Promise<string> {
    throw new Error('the panel exports nothing');
  }

  artifact(): Promise<Uint8Array<ArrayBuffer>> {
    throw new Error('the panel shows no artifacts');
  }

  watch(): Subscription {
    throw new Error('the panel watches no stream');
  }

  get looks(): number {
    return this.queries.length;
  }
}

let service: Service;
let experiments: Experiments;

const pass = (seconds: number): Promise<void> => jest.advanceTimersByTimeAsync(1000 * seconds);

async function watched(): Promise<void> {
  experiments.watched = true;
  await pass(0.01);
}

beforeEach(() => {
  jest.useFakeTimers();
  service = new Service();
  experiments = new Experiments(service, new LiveSettings());
});

afterEach(() => {
  experiments.dispose();
  jest.useRealTimers();
});

test('nothing is asked before somebody looks, nor after', async () => {
  experiments.refresh();
  await pass(60);
  expect(service.asked).toEqual([]);
  await watched();
  expect(service.asked).toEqual(['/experiments', '/nodes', '/disk']);
  experiments.watched = false;
  await pass(60);
  expect(service.looks).toBe(1);
});

test('what is to be said of the disk is asked for once in ten minutes, and is no reason to fail', async () => {
  service.disk = ['the disk is nearly full'];
  await watched();
  expect(experiments.warnings).toEqual(['the disk is nearly full']);
  service.disk = null;
  await pass(590);
  expect(service.asked.filter(path => path === '/disk')).toHaveLength(1);
  await pass(70);
  expect(service.asked.filter(path => path === '/disk')).toHaveLength(2);
  expect(experiments.warnings).toEqual(['the disk is nearly full']);
  expect(experiments.error).toBeNull();
});

test('while something runs it is asked for every two seconds', async () => {
  await watched();
  await pass(10);
  expect(service.looks).toBe(6);
});

test('while nothing goes on it is asked for less and less often', async () => {
  service.found = [done()];
  await watched();
  await pass(60);
  expect(service.looks).toBeGreaterThan(5);
  expect(service.looks).toBeLessThan(9);
});

test('an error leaves what was known, and goes with the next answer', async () => {
  await watched();
  service.found = new ServiceError(503, 'start it');
  experiments.refresh();
  await pass(0.01);
  expect(experiments.error?.message).toBe('start it');
  expect(experiments.list).toHaveLength(1);
  service.found = [done()];
  experiments.refresh();
  await pass(0.01);
  expect(experiments.error).toBeNull();
  expect(experiments.list).toEqual([done()]);
});

test('an answer to an older question is not taken any more', async () => {
  let release = (): void => undefined;
  service.held = new Promise(resolve => (release = resolve));
  experiments.watched = true;
  await pass(0.01);
  service.held = null;
  service.found = [done()];
  experiments.filter = { search: '', state: 'completed', notebook: null };
  await pass(0.01);
  release();
  await pass(0.01);
  expect(service.queries[1]).toEqual({ state: 'completed', limit: 50 });
  expect(experiments.list).toEqual([done()]);
});

test('after an act it is looked at once', async () => {
  await watched();
  await experiments.act(12, 'stop');
  await pass(0.01);
  expect(service.asked.slice(3)).toEqual(['/experiments/12/stop', '/experiments', '/nodes']);
});

test('more is asked for in steps of fifty, and another filter begins anew', async () => {
  service.found = Array.from({ length: 50 }, () => overview());
  await watched();
  expect(experiments.hasMore).toBe(true);
  experiments.more();
  await pass(0.01);
  expect(service.queries.at(-1)).toEqual({ limit: 100 });
  expect(experiments.hasMore).toBe(false);
  experiments.filter = { search: 'a', state: null, notebook: null };
  await pass(0.01);
  expect(service.queries.at(-1)).toEqual({ search: 'a', limit: 50 });
});

test('what was chosen stays in its order until it is given up', () => {
  [15, 12, 3].forEach(number => experiments.choose(number, true));
  experiments.choose(12, false);
  expect(experiments.chosen).toEqual([15, 3]);
  experiments.chooseNone();
  expect(experiments.chosen).toEqual([]);
});
