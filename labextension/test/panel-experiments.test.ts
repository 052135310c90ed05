/** The panel's experiments: when they are asked for, and what becomes of answers, errors and choices. */

import type { Overview } from '../src/api/types';
import { Experiments } from '../src/panel/experiments';
import { PAGE } from '../src/panel/list';
import { Memory, NOTHING_REMEMBERED, rememberedIn } from '../src/panel/remembered';
import { LiveSettings } from '../src/panel/settings';
import { ServiceError } from '../src/service/source';
import type { Query, Source, Subscription } from '../src/service/source';
import { done, experiment, overview } from './fakes';

/** A service with these experiments; its answers to the list wait while `held`. */
class Service implements Source {
  found: Overview[] | ServiceError = [overview()];
  answer: ((query: Query) => Overview[]) | null = null; // in place of `found`
  readonly asked: string[] = [];
  readonly queries: Query[] = [];
  held: Promise<void> | null = null;
  disk: string[] | null = [];

  async get(path: string, query: Query = {}): Promise<unknown> {
    this.asked.push(path);
    if (path === '/nodes') {
      return { nodes: [{ name: 'here', kind: 'cpu', slots: 2, used: 1, devices: [], healthy: true }] };
    }
    if (path === '/queue') {
      return { queue: [] };
    }
    if (path === '/me') {
      return { person: { name: 'dave' }, accounts: [], servers: [] };
    }
    if (path === '/health') {
      return { pages: '/services/daylight' };
    }
    if (path === '/disk') {
      if (this.disk === null) {
        throw new ServiceError(502, 'away');
      }
      return { users: [], experiments: [], shared: {}, free: 1, size: 100, warnings: this.disk };
    }
    this.queries.push(query);
    const found = this.answer?.(query) ?? this.found;
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

  file(): Promise<Blob> {
    throw new Error('the panel saves no files');
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
  expect(service.asked).toEqual(['/experiments', '/nodes', '/disk', '/health']);
  experiments.watched = false;
  await pass(60);
  expect(service.looks).toBe(1);
});

test('what is to be said of the disk is asked for once in ten minutes, and is no reason to fail', async () => {
  service.disk = ['the disk is nearly full'];
  await watched();
  expect(experiments.warnings).toEqual(['the disk is nearly full']);
  expect(experiments.address).toBe('/services/daylight');
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
  expect(service.asked.slice(4)).toEqual(['/experiments/12/stop', '/experiments', '/nodes']);
});

test('the queue and the quotas are asked for while they are shown', async () => {
  await watched();
  expect(service.asked).not.toContain('/queue');
  experiments.queueShown = true;
  await pass(0.01);
  expect(service.asked).toEqual(expect.arrayContaining(['/queue', '/me']));
  expect(experiments.queue?.waiting).toEqual([]);
  experiments.queueShown = false;
  await pass(0.01);
  expect(experiments.queue).toBeNull();
});

describe('a list of many experiments', () => {
  const numbered = (number: number): Overview => overview({ experiment: experiment({ number }) });
  const numbers = (): number[] => experiments.list.map(each => each.experiment.number);
  const down = (from: number, to: number): number[] =>
    Array.from({ length: from - to + 1 }, (_, place) => from - place);
  let all: number[] = [];

  async function look(): Promise<Query[]> {
    const before = service.queries.length;
    experiments.refresh();
    await pass(0.01);
    return service.queries.slice(before);
  }

  beforeEach(async () => {
    all = down(170, 1);
    service.answer = ({ before = Infinity }) =>
      all
        .filter(number => number < Number(before))
        .slice(0, PAGE)
        .map(numbered);
    await watched();
  });

  async function readToTheEnd(): Promise<void> {
    while (experiments.hasMore) {
      experiments.more();
      await pass(0.01);
    }
  }

  test('is read page by page, to its end', async () => {
    expect(numbers()).toEqual(down(170, 121));
    await readToTheEnd();
    expect(numbers()).toEqual(all);
    expect(service.queries.every(({ limit }) => limit === PAGE)).toBe(true);
  });

  test('is read again by the first page, and one of the others in turn', async () => {
    await readToTheEnd();
    const read = [await look(), await look(), await look(), await look()];
    expect(read.map(([first]) => first?.before)).toEqual([undefined, undefined, undefined, undefined]);
    expect(read.map(([, other]) => other?.before)).toEqual([121, 71, 21, 121]);
  });

  test('has what is new, and no longer what was deleted', async () => {
    await readToTheEnd();
    all = [172, 171, ...all.filter(number => ![170, 121, 120, 70, 1].includes(number))];
    for (let turn = 0; turn < 4; turn += 1) {
      await look();
    }
    expect(numbers()).toEqual(all);
  });

  test('begins anew where so many are new that some in between are unknown', async () => {
    await readToTheEnd();
    all = down(300, 1);
    await look();
    expect(numbers()).toEqual(down(300, 251));
    await readToTheEnd();
    expect(numbers()).toEqual(all);
  });

  test('is read again where one of it was changed', async () => {
    await readToTheEnd();
    const asked = service.queries.length;
    await experiments.act(60, 'stop');
    await pass(0.01);
    expect(service.queries[asked + 1]?.before).toBe(61);
  });

  test('begins anew with another filter', async () => {
    await readToTheEnd();
    experiments.filter = { search: 'a', state: null, notebook: null };
    await pass(0.01);
    expect(service.queries.at(-1)).toEqual({ search: 'a', limit: PAGE });
    expect(numbers()).toEqual(down(170, 121));
  });
});

test('no more than twenty are chosen to be compared', () => {
  Array.from({ length: 25 }, (_, index) => experiments.choose(index + 1, true));
  expect(experiments.chosen).toHaveLength(20);
  experiments.choose(3, false);
  experiments.choose(25, true);
  expect(experiments.chosen.at(-1)).toBe(25);
});

describe('the filters of the last visit', () => {
  const kept = new Map<string, string>();
  const storage = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, text: string) => void kept.set(key, text)
  };
  const visited = (): Experiments =>
    new Experiments(service, new LiveSettings(), new Memory(() => storage, '/dave/', rememberedIn));

  beforeEach(() => kept.clear());

  test('narrow the list again, and so does the notebook that is opened', () => {
    const before = visited();
    before.filter = { search: ' apple ', state: 'failed', notebook: 'a.ipynb' };
    before.group = 'param:lr';
    const after = visited();
    expect(after.filter).toEqual({ search: 'apple', state: 'failed', notebook: null });
    expect(after.group).toBe('param:lr');
    after.follow('b.ipynb');
    expect(after.filter.notebook).toBe('b.ipynb');
    after.filter = { ...after.filter, notebook: null };
    const last = visited();
    last.follow('b.ipynb');
    expect(last.filter.notebook).toBeNull();
  });

  test('are those of the same server only', () => {
    visited().filter = { search: 'apple', state: null, notebook: null };
    const other = new Experiments(service, new LiveSettings(), new Memory(() => storage, '/danielle/', rememberedIn));
    expect(other.filter.search).toBe('');
  });

  test('are none where the browser keeps nothing, or something else', () => {
    const locked = (): never => {
      throw new Error('the storage is disabled');
    };
    const without = new Experiments(service, new LiveSettings(), new Memory(locked, '', rememberedIn));
    without.filter = { search: 'apple', state: null, notebook: null };
    expect(without.filter.search).toBe('apple');
    for (const text of [null, '', '[1', '3', 'null', '{"search":3,"state":"lost","group":"owner"}']) {
      expect(rememberedIn(text)).toEqual(NOTHING_REMEMBERED);
    }
  });
});

test('what was chosen stays in its order until it is given up', () => {
  [15, 12, 3].forEach(number => experiments.choose(number, true));
  experiments.choose(12, false);
  expect(experiments.chosen).toEqual([15, 3]);
  experiments.chooseNone();
  expect(experiments.chosen).toEqual([]);
});
