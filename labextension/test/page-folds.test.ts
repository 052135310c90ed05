/** The page of the cluster: what answers change of what it knows, and what a person finds in long lists. */

import { failed, learnt, NOTHING, withAccount, withEntries, withOlderEntries } from '../src/page/clusterstate';
import { ALL, entriesWith, PAGE, pageOf, personText, priorityText, runText, whatOf } from '../src/page/rows';
import { linesOf, useText } from '../src/page/usechart';
import { ownToken } from '../src/page/token';
import { headersFor } from '../src/page/source';
import { ServiceError } from '../src/service/source';
import { account, entry, waiting } from './cluster';

const names = (page: { rows: readonly { name: string }[] }): string[] => page.rows.map(each => each.name);

test('the last numbers stay when nothing answers, and what went wrong is forgotten with the next answer', () => {
  const known = learnt(NOTHING, { queue: [waiting()] }, 100);
  const away = failed(known, new ServiceError(503, 'away'));
  expect([away.queue.length, away.at, away.error?.status]).toEqual([1, 100, 503]);
  expect(learnt(away, { queue: [] }, 103)).toMatchObject({ queue: [], at: 103, error: null });
});

test('a changed account is changed wherever it is shown, and its namesake of the other kind is not', () => {
  const person = { name: 'ada', groups: ['ada'], admin: true, submits: true, monitors: false };
  const accounts = [account({ name: 'ada' }), account({ kind: 'group', name: 'ada' })];
  const known = { ...NOTHING, me: { person, accounts, servers: [] }, accounts };
  const after = withAccount(known, account({ name: 'ada', changed: { limit: 3 } }));
  for (const list of [after.accounts, after.me?.accounts]) {
    expect(list?.map(each => each.changed)).toEqual([{ limit: 3 }, {}]);
  }
});

describe('the log', () => {
  const lines = (from: number, to: number): ReturnType<typeof entry>[] =>
    Array.from({ length: from - to + 1 }, (_, index) => entry({ seq: from - index }));

  test('new lines join those that are there, older ones follow, and none is there twice', () => {
    let known = withEntries(NOTHING, lines(10, 6), 5);
    known = withOlderEntries(known, lines(6, 4), 5);
    known = withEntries(known, lines(12, 8), 5);
    expect(known.audit?.map(each => each.seq)).toEqual([12, 11, 10, 9, 8, 7, 6, 5, 4]);
  });

  test('it has its end where a page is not full', () => {
    expect(withEntries(NOTHING, lines(5, 1), 5).auditEnds).toBe(false);
    expect(withEntries(NOTHING, lines(4, 1), 5).auditEnds).toBe(true);
    const known = withOlderEntries(withEntries(NOTHING, lines(10, 6), 5), lines(5, 3), 5);
    expect(known.auditEnds).toBe(true);
    expect(withEntries(known, lines(11, 7), 5).auditEnds).toBe(true);
  });

  test('where more was written than a page holds there is no hole: the older lines are asked for again', () => {
    const known = withEntries(withEntries(NOTHING, lines(5, 1), 5), lines(20, 16), 5);
    expect([known.audit?.length, known.auditEnds]).toEqual([5, false]);
  });

  test('what is searched for is there alone, and joined by what is new of it', () => {
    let known = withEntries(withEntries(NOTHING, lines(10, 6), 5), lines(3, 2), 5, 'n1');
    expect([known.audit?.map(each => each.seq), known.auditOf, known.auditEnds]).toEqual([[3, 2], 'n1', true]);
    known = withEntries(known, lines(4, 2), 5, 'n1');
    expect(known.audit?.map(each => each.seq)).toEqual([4, 3, 2]);
    expect(withEntries(known, lines(10, 6), 5).auditEnds).toBe(false);
  });

  test('it is searched by all of the words', () => {
    const entries = [
      entry({ who: 'ada', on: 'node n1' }),
      entry({ who: 'ada', on: '#12' }),
      entry({ who: 'bob', on: 'node n1' })
    ];
    expect(entriesWith(entries, ' ADA  n1 ')).toEqual([entries[0]]);
    expect(entriesWith(entries, ' ')).toHaveLength(3);
  });
});

describe('users and groups', () => {
  const many = Array.from({ length: 120 }, (_, index) => account({ name: `u${index + 1}`, members: ['vision'] }));
  const groups = [account({ kind: 'group', name: 'vision', members: ['u1'] }), account({ kind: 'group', name: 'a' })];

  test('groups come first, and u2 is before u10', () => {
    expect(names(pageOf([...many, ...groups], ALL)).slice(0, 4)).toEqual(['a', 'vision', 'u1', 'u2']);
  });

  test('they come a page at a time, and the last page is shown where so many are no more', () => {
    const third = pageOf(many, { ...ALL, page: 2 });
    expect([third.first, third.rows.length, third.of, third.pages]).toEqual([2 * PAGE + 1, 20, 120, 3]);
    expect(pageOf(many.slice(0, 60), { ...ALL, page: 2 })).toMatchObject({ page: 1, first: 51, of: 60 });
    expect(pageOf([], { ...ALL, page: 2 })).toMatchObject({ page: 0, first: 0, of: 0, pages: 1 });
  });

  test('a search finds a group, and who is in it', () => {
    expect(names(pageOf([...many.slice(0, 2), ...groups], { ...ALL, search: ' Vis ' }))).toEqual([
      'vision',
      'u1',
      'u2'
    ]);
    expect(names(pageOf([...many, ...groups], { ...ALL, search: 'vision', kind: 'group' }))).toEqual(['vision']);
  });

  test('they are sorted by their numbers, no limit being the highest', () => {
    const by = (limit: number | null, name: string): ReturnType<typeof account> =>
      account({ name, quota: { ...account().quota, limit } });
    const all = [by(4, 'four'), by(null, 'free'), by(8, 'eight'), by(null, 'free too')];
    expect(names(pageOf(all, { ...ALL, order: 'limit' }))).toEqual(['four', 'eight', 'free', 'free too']);
    expect(names(pageOf(all, { ...ALL, order: 'limit', down: true }))).toEqual(['free', 'free too', 'eight', 'four']);
  });

  test('those with numbers that were set here are found', () => {
    const all = [account({ name: 'ada', changed: { weight: 2 } }), account({ name: 'bob' })];
    expect(names(pageOf(all, { ...ALL, changed: true }))).toEqual(['ada']);
  });
});

test('of what one may not see only the group and the slots are told', () => {
  expect(personText('', 'vision')).toBe('a user of vision');
  expect(personText('', '')).toBe('another user');
  expect(whatOf(waiting({ experiment: null }))).toBe('');
});

test('an ask is named as everywhere: the first trial by its experiment alone', () => {
  expect(whatOf(waiting({ experiment: 12, trial: 1, name: 'digits' }))).toBe('#12 digits');
  expect(whatOf(waiting({ experiment: 12, trial: 3, name: null }))).toBe('#12.3');
  expect(whatOf(waiting({ experiment: 12, trial: null, name: null }))).toBe('#12');
});

test('who was put first has no number', () => {
  expect([priorityText(1_000_003), priorityText(1000)]).toEqual(['first', '1000']);
});

describe('use over time', () => {
  const use = { at: [0, 3600, 7200, 14400], held: [2, 4, 0], quota: { ...account().quota, limit: 8, guarantee: 2 } };

  test('what was held last holds until the end, and the limit is in sight', () => {
    expect(linesOf(use)).toMatchObject({ held: [2, 4, 0, 0], limit: [8, 8, 8, 8], guarantee: [2, 2, 2, 2], most: 9 });
  });

  test('what is no limit is no line', () => {
    expect(linesOf({ ...use, quota: account().quota })).toMatchObject({ limit: [null, null, null, null], most: 5 });
  });

  test('a sentence says the same, by the time of each part', () => {
    expect(useText(use)).toBe('1.5 slots on the average, 4 at most; the limit is 8; 6 slot-hours');
    expect(useText({ at: [0], held: [], quota: account().quota })).toMatch(
      /^0 slots on the average, 0 at most; no limit/
    );
  });
});

test('a token behind the # is kept for the tab and taken from the address; no other fragment is one', () => {
  const kept = new Map<string, string>();
  const storage = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => kept.set(key, value)
  };
  const addresses: unknown[] = [];
  const past = { replaceState: (...given: unknown[]) => addresses.push(given[2]) };
  const at = (hash: string): string | null => ownToken({ hash, pathname: '/', search: '' }, storage, past);
  expect(at('#accounts')).toBeNull();
  expect(at('#token=s3cr-et_1')).toBe('s3cr-et_1');
  expect(addresses).toEqual(['/']);
  expect(at('#audit')).toBe('s3cr-et_1');
});

test('behind a hub a request carries what only our own page can read', () => {
  expect(headersFor(null, 'a=1; _xsrf=2|ab%7Ccd; b=3')).toEqual({
    'Content-Type': 'application/json',
    'X-XSRFToken': '2|ab|cd'
  });
  expect(headersFor('t', 'not_xsrf=1')).toEqual({ 'Content-Type': 'application/json', Authorization: 'Bearer t' });
});

it('tells what holds slots, and since when nothing was done in a notebook server', () => {
  const nobody = {
    owner: '',
    experiment: null,
    trial: null,
    server: null,
    last_activity: null,
    take_back_at: null,
    outside: ''
  };
  const run = { ...nobody, slots: 4, group: 'vision' };
  expect(runText(run, 0)).toBe('a user of vision, 4 slots');
  expect(runText({ ...run, group: '', outside: 'pod ml/web' }, 0)).toBe('pod ml/web, 4 slots');
  expect(runText({ ...run, owner: 'ada', experiment: 12, trial: 3 }, 0)).toBe('#12.3 ada, 4 slots');
  const server = { ...run, owner: 'dave', slots: 1, server: 'dave/', last_activity: 1000 };
  expect(runText(server, 1010)).toBe('dave: notebook server, 1 slot');
  expect(runText({ ...server, server: 'dave/second' }, 1000 + 3000)).toBe(
    'dave: notebook server second, 1 slot, idle for 50 min'
  );
  expect(runText({ ...server, take_back_at: 8200 }, 4600)).toMatch(
    /^dave: notebook server, 1 slot, idle for 60 min; if nothing is done there it may be stopped from .+ on$/
  );
});
