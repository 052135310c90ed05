/** What a person does on the page of the cluster: what is sent, what is said, and how it is taken back. */

import type { NodeUse, Waiting } from '../src/api/types';
import { Cluster } from '../src/page/cluster';
import { clearQuota, drain, moveFirst, setPriority, setQuota, trust } from '../src/page/actions';
import { fieldText, givenText, heldText, slotHoursText, typedValue, windowText } from '../src/page/fields';
import { nodeReasons, nodeState } from '../src/page/rows';
import type { Requester, Method } from '../src/page/source';
import { ServiceError } from '../src/service/source';
import { account, entry, waiting } from './cluster';

const NODE: NodeUse = {
  name: 'n 1',
  kind: 'cpu',
  slots: 2,
  used: 0,
  devices: [],
  healthy: true,
  pool: 'local',
  address: '',
  drained: false,
  state: '',
  reason: '',
  suspicion: null,
  runs: []
};

describe('a number that is set', () => {
  const ada = account({ changed: { weight: 2, limit: null }, quota: { ...account().quota, weight: 2 } });

  test('is sent alone, and taken back with all that was set before', () => {
    const act = setQuota(ada, 'guarantee', 4);
    expect([act.method, act.path, act.body]).toEqual(['PUT', '/accounts/user/ada/quota', { guarantee: 4 }]);
    expect(act.undo?.body).toEqual({
      guarantee: null,
      limit: 'none',
      slot_hours: null,
      weight: 2,
      priority: null,
      max_slots_per_trial: null,
      storage: null
    });
  });

  test('is told before and after, as the service has it', () => {
    const after = account({
      kind: 'group',
      name: 'vision',
      quota: { ...ada.quota, slot_hours: { hours: 500, window: 604800 } }
    });
    const act = setQuota(account({ kind: 'group', name: 'vision' }), 'slot_hours', '500/7d');
    expect(act.said(after)).toBe('Slot-hours of group vision: 500/7d, it was none');
  });

  test('is all the hub gives again, and back', () => {
    const act = clearQuota(account({ name: 'a/b', changed: { limit: 4 } }));
    expect([act.method, act.path]).toEqual(['DELETE', '/accounts/user/a%2Fb/quota']);
    expect(act.undo?.body).toMatchObject({ limit: 4, weight: null });
  });
});

test('what is typed is a number, a text for the service to judge, or nothing: the hub again', () => {
  expect(['8', ' 1.5 ', '-3', '500/7d', 'none', '1e3', '', ' '].map(typedValue)).toEqual([
    8,
    1.5,
    -3,
    '500/7d',
    'none',
    '1e3',
    null,
    null
  ]);
});

test('what is shown of a field can be typed again', () => {
  const quota = { ...account().quota, slot_hours: { hours: 40.5, window: 43200 } };
  expect(fieldText(quota, 'slot_hours')).toBe('40.5/12h');
  expect(fieldText(quota, 'limit')).toBe('none');
  expect(slotHoursText({ hours: 2000, window: 28 * 86400 })).toBe('2000/28d');
  expect(
    ['none', 500, 2e12, 1500000, 7].map(count =>
      fieldText({ ...quota, storage: count === 'none' ? null : Number(count) }, 'storage')
    )
  ).toEqual(['none', '500', '2TB', '1500kB', '7']);
  expect(givenText(account(), 'weight')).toBe('1');
});

test('use is told of the limit, where there is one', () => {
  const use = { held: 1, decayed: 0, window: 5400 };
  const quota = { ...account().quota, limit: 8, slot_hours: { hours: 500, window: 604800 } };
  expect(heldText(account({ use }))).toBe('1 slot');
  expect(heldText(account({ use, quota }))).toBe('1 of 8 slots');
  expect(windowText(account({ use, quota }))).toBe('1.5 of 500 slot-hours in 7 d');
});

test('a drained node is undrained again, and the other way round', () => {
  expect([drain(NODE, true).path, drain(NODE, true).undo?.path]).toEqual([
    '/nodes/n%201/drain',
    '/nodes/n%201/undrain'
  ]);
  expect(drain(NODE, false).undo?.path).toBe('/nodes/n%201/drain');
});

test('a suspect node is trusted by the request that undrains one, which cannot be undone', () => {
  expect([trust(NODE).path, trust(NODE).said(NODE), trust(NODE).undo]).toEqual([
    '/nodes/n%201/undrain',
    'n 1 is trusted again: new work starts there',
    null
  ]);
});

describe('the state of a node', () => {
  const suspicion = { since: 0, until: 7300, reason: 'GPU 0: Xid 79', left_out: true };

  test('is the first of what keeps new work away', () => {
    const states = [{}, { suspicion }, { suspicion, healthy: false }, { suspicion, healthy: false, drained: true }];
    expect(states.map(each => nodeState({ ...NODE, ...each })[0])).toEqual([
      'ready',
      'suspect',
      'does not answer',
      'drained'
    ]);
    expect(nodeState({ ...NODE, suspicion: { ...suspicion, left_out: false } })[0]).toBe('ready');
  });

  test('has its reasons beside it', () => {
    expect(nodeReasons(NODE, 100)).toEqual([]);
    expect(nodeReasons({ ...NODE, reason: 'fans', suspicion }, 100)).toEqual([
      'fans',
      'GPU 0: Xid 79; left out for 2 h more'
    ]);
    const used = { ...NODE, suspicion: { ...suspicion, left_out: false } };
    expect(nodeReasons(used, 100)[0]).toContain('but used as half of its pool is left out, for 2 h more');
  });
});

describe('the order of the queue', () => {
  const asked = waiting({ priority: 3 });
  const given = waiting({ priority: 4, by_admin: true });
  const first = waiting({ priority: 1_000_001, by_admin: true });
  const answer = (priority: number | null): unknown => ({ experiment: { priority } });
  const undone = (row: Waiting, admin: boolean, after: number | null): unknown =>
    setPriority(row, 12, 5, admin).undoneBy?.(answer(after))?.body;

  test('who was put first is as it was: by the owner, by an admin, or at the front', () => {
    expect(moveFirst(asked, 12).undo).toMatchObject({ path: '/queue/12/priority', body: { priority: null } });
    expect(moveFirst(given, 12).undo?.body).toEqual({ priority: 4 });
    expect(moveFirst(first, 12).undo?.body).toEqual({ priority: 1_000_001 });
    expect(moveFirst(first, 12).undo?.said(null)).toBe('Priority of #12: as it was');
  });

  test('a priority that an admin gave is taken back; an owner sets the old one', () => {
    expect(setPriority(asked, 12, 5, true).said(null)).toBe('Priority of #12: 5, it was 3');
    expect(undone(asked, true, 5)).toEqual({ priority: null });
    expect(undone(given, true, 5)).toEqual({ priority: 4 });
    expect(undone(asked, true, null)).toEqual({ priority: 3 }); // an admin's own, within the quota
    expect(undone(asked, false, null)).toEqual({ priority: 3 });
  });

  test('an owner who has lowered what an admin gave cannot have it back', () => {
    expect(setPriority(given, 12, 1, false).undoneBy?.(answer(1))).toBeNull();
  });
});

const ME = { person: { name: 'ada', groups: [], admin: true, submits: true, monitors: false }, accounts: [] };

/** A service that answers what a test has it answer. */
class Service implements Requester {
  readonly asked: string[] = [];
  answers: (method: Method, path: string) => unknown = () => ({});
  heard: (path: string, query: unknown) => unknown = () => null;

  ask(method: Method, path: string, query?: unknown, body?: unknown): Promise<unknown> {
    this.heard(path, query);
    this.asked.push(`${method} ${path}${body ? ` ${JSON.stringify(body)}` : ''}`);
    return Promise.resolve().then(() => this.answers(method, path));
  }

  text(path: string): Promise<string> {
    this.asked.push(`GET ${path}`);
    return Promise.resolve('');
  }

  count(start: string): number {
    return this.asked.filter(each => each.startsWith(start)).length;
  }
}

describe('the cluster', () => {
  let service: Service;
  let cluster: Cluster;
  const pass = (seconds: number): Promise<void> => jest.advanceTimersByTimeAsync(1000 * seconds);

  beforeEach(() => {
    jest.useFakeTimers();
    service = new Service();
    cluster = new Cluster(service, () => 7);
  });

  afterEach(() => {
    cluster.dispose();
    jest.restoreAllMocks();
    jest.useRealTimers();
  });

  test('is looked at again and again, and only for what the view shows', async () => {
    service.answers = (_, path) => (path === '/queue' ? { queue: [waiting()] } : {});
    cluster.show('cluster');
    await pass(10);
    expect(service.count('GET /queue')).toBeGreaterThan(2);
    expect(service.count('GET /accounts')).toBe(0);
    expect(cluster.snapshot).toMatchObject({ queue: [{ experiment: 12 }], at: 7 });
    cluster.show('audit');
    await pass(0.01);
    const before = service.count('GET /queue');
    await pass(10);
    expect(service.count('GET /queue')).toBe(before);
  });

  test('searches all of the log when nobody has typed for a moment', async () => {
    const queries: unknown[] = [];
    service.answers = (_, path) => (path === '/audit' ? { audit: [entry({ seq: 3 })] } : ME);
    service.heard = (path, query) => path === '/audit' && queries.push(query);
    cluster.show('audit');
    await pass(0.01);
    cluster.search('n');
    await pass(0.1);
    cluster.search('n1');
    await pass(0.1);
    expect(queries).toEqual([{ limit: 200 }]);
    await pass(0.3);
    expect(queries.slice(1)).toEqual([{ limit: 200, search: 'n1' }]);
    expect(cluster.snapshot).toMatchObject({ audit: [{ seq: 3 }], auditOf: 'n1', auditEnds: true });
    await cluster.older();
    expect(queries.at(-1)).toEqual({ limit: 200, search: 'n1', before: 3 });
  });

  test.each([0, 0.5, 0.999])(
    'keeps the last numbers while nothing answers, and comes back by itself (%d)',
    async chance => {
      jest.spyOn(Math, 'random').mockReturnValue(chance); // of which the rests between two looks are made
      service.answers = (_, path) => (path === '/queue' ? { queue: [waiting()] } : {});
      cluster.show('cluster');
      await pass(0.01);
      service.answers = () => {
        throw new ServiceError(503, 'away');
      };
      await pass(20);
      expect(cluster.snapshot).toMatchObject({ queue: [{ experiment: 12 }], error: { message: 'away' } });
      service.answers = (_, path) => (path === '/queue' ? { queue: [] } : {});
      await pass(16); // the longest rest, and the answer
      expect(cluster.snapshot).toMatchObject({ queue: [], error: null });
    }
  );

  test('an act is in sight at once, said, and taken back once', async () => {
    const before = account();
    const after = account({ changed: { limit: 4 }, quota: { ...before.quota, limit: 4 } });
    service.answers = (method, path) => (path === '/accounts' ? { accounts: [before] } : method === 'PUT' ? after : ME);
    cluster.show('accounts');
    await pass(0.01);
    await cluster.act(setQuota(before, 'limit', 4));
    expect(cluster.snapshot.accounts).toEqual([after]);
    expect(cluster.done?.text).toBe('Limit of ada: 4, it was none');
    service.answers = () => before;
    await cluster.undo();
    expect(service.count('PUT')).toBe(2);
    expect(cluster.done).toMatchObject({ text: 'ada: as it was', undo: null });
    await cluster.undo();
    expect(service.count('PUT')).toBe(2);
  });

  test('an answer that was asked for before an act does not undo it in sight', async () => {
    const before = account();
    const after = account({ changed: { limit: 4 } });
    let slow: (() => void) | null = null;
    const wait = new Promise<void>(resolve => (slow = resolve));
    service.answers = (method, path) =>
      method === 'PUT' ? after : path === '/accounts' ? wait.then(() => ({ accounts: [before] })) : ME;
    cluster.show('accounts');
    await pass(0.01);
    await cluster.act(setQuota(before, 'limit', 4));
    service.answers = () => ({ accounts: [after] });
    (slow as unknown as () => void)();
    await pass(0.01);
    expect(cluster.snapshot.accounts).toEqual([after]);
  });

  test('a refusal is thrown to who waits for it, else said', async () => {
    service.answers = () => {
      throw new ServiceError(403, 'nodes are drained by admins: ada is none');
    };
    await expect(cluster.act(drain(NODE, true))).rejects.toThrow('drained by admins');
    expect(cluster.done).toBeNull();
    await cluster.try(drain(NODE, true));
    expect(cluster.done).toMatchObject({ text: 'nodes are drained by admins: ada is none', wrong: true, undo: null });
  });
});
