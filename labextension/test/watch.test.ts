/** A watch shows what is known, goes on by itself, and says how the line stands. */

import type { Saved } from '../src/model/words';
import { ServiceError } from '../src/service/source';
import { Watch } from '../src/service/watch';
import type { Look } from '../src/service/watch';
import {
  attempt,
  curves,
  done,
  experiment,
  FakeSource,
  missing,
  overview,
  queued,
  report,
  reported,
  said,
  saved,
  silence,
  snapped,
  trial
} from './fakes';

const NOW = 1000; // seconds: when a test begins

let source: FakeSource;
let watch: Watch;
let looks: Look[];

beforeEach(() => {
  jest.useFakeTimers({ now: NOW * 1000 });
  source = new FakeSource();
});

afterEach(() => {
  watch.dispose();
  expect(jest.getTimerCount()).toBe(0);
  jest.useRealTimers();
});

/** A watch that has begun; chance 0.5 makes pauses as long as they are said to be. */
async function begun(from: Saved | null = null): Promise<void> {
  made(from);
  watch.start();
  await passed(0.1);
}

function made(from: Saved | null = null): void {
  watch = new Watch(source, 12, from, { clock: () => Date.now() / 1000, chance: () => 0.5 });
  looks = [];
  watch.subscribe(look => looks.push(look));
}

/** Time passes, and answers come. */
async function passed(seconds: number): Promise<void> {
  await jest.advanceTimersByTimeAsync(seconds * 1000);
}

async function cut(error: ServiceError = snapped): Promise<void> {
  source.stream.listener.closed(error);
  await passed(0.06);
}

function connection(): string {
  return watch.look.connection;
}

describe('at the beginning', () => {
  test('nothing is asked before start, and start is one start', async () => {
    made();
    await passed(60);
    expect([source.asked, connection(), watch.look.overview]).toEqual([[], 'connecting', null]);
    watch.start();
    watch.start();
    expect(source.asked).toEqual(['/experiments/12', '/experiments/12/curves']);
    expect(source.queries[1]).toEqual({ trial: 1, points: 400 });
  });

  test('overview and curves are loaded, and the stream is heard from the older of them', async () => {
    source.overview = overview({ seq: 50 });
    source.curves = curves(report(1), report(20));
    await begun();
    expect(connection()).toBe('live');
    expect([source.stream.after, source.stream.experiment]).toEqual([20, 12]);
    expect(watch.look.curves[0]?.step).toEqual([1, 20]);
    expect(looks.at(-1)).toBe(watch.look);
  });

  test('what the API adds to an overview is not kept', async () => {
    source.overview = { id: 12, state: 'running', name: 'digits', ...overview() } as FakeSource['overview'];
    await begun();
    expect(watch.look.overview).toEqual(overview());
  });

  test('a saved state is shown at once, and what the service says replaces it', async () => {
    made(saved({ overview: overview({ seq: 3, warnings: ['old'] }) }));
    expect([connection(), watch.look.at, watch.look.overview?.warnings]).toEqual(['connecting', 150, ['old']]);
    watch.start();
    await passed(0.1);
    expect(watch.look.overview?.warnings).toEqual([]);
    expect(watch.look.captured).toEqual(['2 values captured']);
    expect(watch.look.at).toBe(NOW);
  });

  test("another number's saved state is none", () => {
    made(saved({ number: 13 }));
    expect(watch.look.overview).toBeNull();
  });

  test('an experiment that is not there is gone', async () => {
    source.overview = missing;
    await begun();
    await passed(60);
    expect([connection(), watch.look.trouble]).toEqual(['gone', 'there is no experiment #12']);
    expect(source.asked).toHaveLength(2);
  });
});

describe('live', () => {
  test('each part folds only what it does not include yet', async () => {
    source.overview = overview({ seq: 50, trials: [trial({ step: 30 })] });
    source.curves = curves(report(1), report(20));
    await begun();
    source.stream.say(reported(20), reported(30), said(40, { type: 'note', data: { text: 'old' } }), reported(51));
    expect(watch.look.curves[0]?.step).toEqual([1, 20, 30, 51]);
    expect(watch.look.overview).toMatchObject({ seq: 51, warnings: [], trials: [{ step: 51 }] });
  });

  test('a message that comes twice, or of another experiment, changes nothing', async () => {
    await begun();
    source.stream.say(reported(7));
    await passed(1);
    const before = [watch.look, looks.length];
    source.stream.say(reported(7));
    source.stream.say({ ...reported(8), experiment: 13 });
    await passed(1);
    expect([watch.look, looks.length]).toEqual(before);
  });

  test('parts that did not change stay the same objects', async () => {
    await begun();
    source.stream.say(reported(7));
    const before = watch.look;
    source.stream.say(said(8, { type: 'note', data: { text: 'disk full' } }));
    expect(watch.look).not.toBe(before);
    expect(watch.look.curves[0]).toBe(before.curves[0]);
    expect(watch.look.overview?.trials).toBe(before.overview?.trials);
  });

  test('ten thousand messages at once are one change', async () => {
    await begun();
    const before = looks.length;
    for (let step = 6; step < 10_006; step++) {
      source.stream.say(reported(step));
    }
    await passed(1);
    expect(looks.length - before).toBe(1);
    expect(looks.at(-1)?.overview?.trials[0]?.step).toBe(10_005);
    const [curve] = watch.look.curves;
    expect(curve?.size.reduce((one, other) => one + other)).toBe(10_000);
    expect(curve?.size.length).toBeLessThanOrEqual(800);
  });

  test('a change is told within 50 ms', async () => {
    await begun();
    await passed(1);
    const before = looks.length;
    source.stream.say(reported(7));
    await passed(0.05);
    expect(looks.length - before).toBe(1);
  });

  test('nothing is told while nothing happens', async () => {
    await begun();
    const before = looks.length;
    await passed(600);
    expect([looks.length, source.asked.length]).toEqual([before, 2]);
  });

  test('listeners come and go in any order, also while they are called', async () => {
    await begun();
    const heard: string[] = [];
    const ends = [watch.subscribe(() => ends[1]?.()), watch.subscribe(() => heard.push('second'))];
    const third = watch.subscribe(() => heard.push('third'));
    source.stream.say(reported(7));
    await passed(0.1);
    expect(heard).toEqual(['third']);
    third();
    third();
    source.stream.say(reported(8));
    await passed(0.1);
    expect(heard).toEqual(['third']);
  });
});

describe('while it waits', () => {
  test('the reason is asked for every five seconds, until it runs', async () => {
    source.overview = queued();
    await begun();
    source.overview = queued({ wait: { reason: 'next in queue', place: 1, estimate: 60 } });
    await passed(5);
    expect(watch.look.overview?.wait?.reason).toBe('next in queue');
    await passed(5);
    expect(source.asked.slice(2)).toEqual(['/experiments/12', '/experiments/12']);
    source.stream.say(said(6, { type: 'trial', data: trial({ state: 'starting' }) }));
    await passed(60);
    expect(source.asked).toHaveLength(4);
    expect(watch.look.overview?.wait).toBeNull();
  });

  test('soon after a trial was queued again the reason is there', async () => {
    await begun();
    source.stream.say(said(6, { type: 'trial', data: trial({ state: 'queued' }) }));
    source.overview = queued({ seq: 6 });
    await passed(0.5);
    expect(watch.look.overview?.wait?.place).toBe(2);
  });

  test('an answer that the stream has overtaken is dropped', async () => {
    source.overview = queued();
    await begun();
    const release = source.hold();
    await passed(5);
    source.stream.say(said(6, { type: 'trial', data: trial({ state: 'starting' }) }));
    release();
    await passed(0.1);
    expect(watch.look.overview?.trials[0]?.state).toBe('starting');
  });

  test('an answer that fails is asked for again, and the line stands', async () => {
    source.overview = queued();
    await begun();
    source.overview = silence;
    await passed(5);
    expect(connection()).toBe('live');
    source.overview = queued({ wait: null });
    await passed(5);
    expect(watch.look.overview?.wait).toBeNull();
  });

  test('a trial that is too large for the machine is asked for, a paused one is not', async () => {
    source.overview = overview({ trials: [trial({ state: 'paused', holds: ['engine'] })] });
    await begun();
    await passed(5);
    expect(source.asked).toHaveLength(3);
    source.stream.say(said(6, { type: 'trial', data: trial({ state: 'paused', holds: ['user'] }) }));
    await passed(60);
    expect(source.asked).toHaveLength(3);
  });
});

describe('after a cut', () => {
  test('the last look stays, and says when it is tried again', async () => {
    await begun();
    source.stream.say(reported(7));
    source.overview = silence;
    await cut();
    expect(connection()).toBe('lost');
    expect(watch.look.trouble).toBe('the connection was cut (1006); trying again in 0.5 s');
    expect(watch.look.curves[0]?.step).toEqual([7]);
  });

  test('pauses grow to 15 s, and chance moves each a little', async () => {
    await begun();
    source.overview = silence;
    await cut();
    const said: (string | undefined)[] = [];
    for (const pause of [0.5, 1, 2, 4, 8, 15, 15]) {
      said.push(watch.look.trouble?.split('again ')[1]);
      const before = source.asked.length;
      await passed(pause - 0.1);
      expect(source.asked).toHaveLength(before);
      await passed(0.1);
      expect(source.asked).toHaveLength(before + 1);
    }
    expect(said).toEqual(['in 0.5 s', 'in 1 s', 'in 2 s', 'in 4 s', 'in 8 s', 'in 15 s', 'in 15 s']);
  });

  test.each([
    [0, 400],
    [1, 600]
  ])('chance %p makes the first pause %p ms', async (chance, pause) => {
    source.overview = silence;
    watch = new Watch(source, 12, null, { clock: () => 0, chance: () => chance });
    watch.start();
    await jest.advanceTimersByTimeAsync(pause - 1);
    expect(source.asked).toHaveLength(2);
    await jest.advanceTimersByTimeAsync(2);
    expect(source.asked).toHaveLength(4);
  });

  test('it is heard again from the newest message, and the overview is read anew for its wait', async () => {
    await begun();
    source.stream.say(reported(7), said(70_009, { type: 'attempt', data: attempt() }));
    await cut();
    source.overview = queued({ seq: 70_030 });
    await passed(1);
    expect(source.asked.slice(2)).toEqual(['/experiments/12']);
    expect([connection(), watch.look.trouble, source.stream.after]).toEqual(['live', null, 70_009]);
    expect(watch.look.overview?.wait?.place).toBe(2);
    source.stream.say(reported(8, 70_020));
    expect(watch.look.curves[0]?.step).toEqual([7, 8]);
  });

  test('after a long absence thinned curves are read instead of all messages', async () => {
    await begun();
    await cut();
    source.overview = overview({ seq: 90_000 });
    source.curves = curves(report(80_000));
    await passed(1);
    expect(source.asked.slice(2)).toEqual(['/experiments/12', '/experiments/12/curves']);
    expect([source.stream.after, watch.look.curves[0]?.step]).toEqual([80_000, [80_000]]);
  });

  test('a stream that breaks at once is no success: pauses go on growing', async () => {
    await begun();
    await cut();
    await passed(0.5);
    await cut();
    expect(watch.look.trouble).toContain('in 1 s');
    await passed(1);
    source.stream.say(reported(7));
    await cut();
    expect(watch.look.trouble).toContain('in 0.5 s');
  });

  test('a stream that was open for long makes the next pause short', async () => {
    await begun();
    await cut();
    await passed(20);
    await cut();
    expect(watch.look.trouble).toContain('in 0.5 s');
  });

  test('a stream that cannot be opened is a cut', async () => {
    source.opens = false;
    await begun();
    expect(connection()).toBe('lost');
  });

  test.each([
    ['never opens', (): void => void (source.opens = false)],
    ['is cut before it has said anything', (): void => void (source.cuts = true)],
    ['is not even tried by the browser', (): void => void (source.refuses = true)]
  ])('where every stream %s, it looks every few seconds and says so', async (_, block) => {
    block();
    await begun();
    await passed(2);
    expect([connection(), watch.look.trouble]).toEqual(['live', expect.stringContaining('looking every 5 s')]);
    source.curves = curves(report(1), report(2));
    const before = source.asked.length;
    await passed(50);
    expect([connection(), watch.look.curves[0]?.step]).toEqual(['live', [1, 2]]);
    expect(source.asked).toHaveLength(before + 2 * 10);
    [source.opens, source.cuts, source.refuses] = [true, false, false];
    await passed(10.1);
    expect([connection(), watch.look.trouble]).toEqual(['live', null]);
    expect(source.stream.closed).toBe(false);
    source.stream.say(reported(7));
    expect(watch.look.curves[0]?.step).toEqual([1, 2, 7]);
  });

  test('one message is proof enough that a stream comes through', async () => {
    source.opens = false;
    await begun();
    await passed(2);
    source.opens = true;
    await passed(5.1);
    expect(watch.look.trouble).not.toBeNull();
    source.stream.say(reported(7));
    expect([connection(), watch.look.trouble]).toEqual(['live', null]);
  });

  test('without a stream its end is heard, and a service that is gone is missed', async () => {
    source.opens = false;
    await begun();
    await passed(2);
    source.overview = silence;
    await passed(5.1);
    expect([connection(), watch.look.trouble]).toEqual(['lost', expect.stringContaining('no answer; trying again')]);
    source.overview = done();
    await passed(30);
    expect(connection()).toBe('ended');
  });

  test('what has several lines keeps them', async () => {
    source.overview = new ServiceError(503, 'it could not start. Its log ends:\n  no space left');
    await begun();
    expect(watch.look.trouble).toMatch(/no space left\ntrying again in /);
  });

  test('trying now does not wait for the pause', async () => {
    source.overview = silence;
    await begun();
    await passed(10);
    source.overview = overview();
    watch.retry();
    expect(watch.look.trouble).toBe('no answer; trying again now');
    const before = source.asked.length;
    watch.retry(); // it is being tried
    expect(source.asked).toHaveLength(before);
    await passed(0.1);
    expect(connection()).toBe('live');
    expect(source.streams).toHaveLength(1);
  });

  test('a service that answers something else is quoted', async () => {
    source.overview = new ServiceError(403, 'log in again');
    await begun();
    expect(watch.look.trouble).toBe('log in again; trying again in 0.5 s');
  });

  test('what the cut stream still says is not heard', async () => {
    await begun();
    const old = source.stream;
    await cut();
    old.say(reported(7));
    old.listener.opened();
    old.listener.closed(silence);
    expect([connection(), watch.look.curves]).toEqual(['lost', []]);
  });

  test('an experiment that ended meanwhile is read whole', async () => {
    await begun();
    await cut();
    source.overview = done();
    source.curves = curves(report(1), report(80));
    await passed(1);
    expect([connection(), watch.look.curves[0]?.step]).toEqual(['ended', [1, 80]]);
    expect(source.streams).toHaveLength(1);
  });

  test('an experiment that is not there any more is gone, until one asks again', async () => {
    await begun();
    await cut(missing);
    expect(connection()).toBe('gone');
    expect(watch.look.trouble).toBe('experiment #12 is no longer there; this is how it was last seen');
    await passed(60);
    expect(source.asked).toHaveLength(2);
    watch.retry();
    await passed(0.1);
    expect(connection()).toBe('live');
  });
});

describe('at the end', () => {
  test('overview and curves are read once more, and the stream is closed', async () => {
    await begun();
    source.overview = done({ warnings: ['the last word'] });
    source.curves = curves(report(1), report(80));
    source.stream.say(said(7, { type: 'experiment', data: done().experiment }));
    await passed(0.1);
    expect([connection(), source.stream.closed]).toEqual(['ended', true]);
    expect(watch.look.overview?.warnings).toEqual(['the last word']);
    expect(watch.look.curves[0]?.step).toEqual([1, 80]);
    expect(source.asked).toHaveLength(4);
    await passed(600);
    watch.retry();
    expect(source.asked).toHaveLength(4);
  });

  test('a service that leaves with the last message takes nothing with it', async () => {
    await begun();
    source.overview = silence;
    source.stream.say(reported(7), said(8, { type: 'experiment', data: done().experiment }));
    await passed(60);
    expect([connection(), watch.look.trouble, watch.look.curves[0]?.step]).toEqual(['ended', null, [7]]);
  });

  test('an experiment that had ended before is read twice: it may have ended between two answers', async () => {
    source.overview = done();
    await begun();
    expect([connection(), source.asked.length, source.streams.length]).toEqual(['ended', 4, 0]);
  });

  test('a saved end is shown at once and read whole', async () => {
    source.overview = done();
    source.curves = curves(report(1), report(80));
    await begun(saved({ overview: done() }));
    expect([connection(), source.asked.length, watch.look.curves.length]).toEqual(['ended', 2, 1]);
  });

  test('a saved end needs no service', async () => {
    source.overview = silence;
    await begun(saved({ overview: done(), curves: curves(report(1)) }));
    await passed(600);
    expect([connection(), watch.look.trouble, source.asked.length]).toEqual(['ended', null, 2]);
    expect([watch.look.at, watch.look.curves[0]?.step]).toEqual([150, [1]]);
  });

  test('a saved end whose experiment is not there any more says so', async () => {
    source.overview = missing;
    await begun(saved({ overview: done() }));
    expect([connection(), watch.look.overview?.experiment.state]).toEqual(['gone', 'completed']);
  });
});

describe("another Daylight's experiment of this number", () => {
  test.each([{ created_at: 101 }, { snapshot: '1'.repeat(64) }])('is not shown: %p', async other => {
    source.overview = overview({ experiment: experiment({ name: 'theirs', ...other }) });
    const before = saved();
    await begun(before);
    expect(connection()).toBe('foreign');
    expect(watch.look.trouble).toBe('another Daylight has this experiment; here #12 is another one');
    expect(watch.look.overview).toEqual(before.overview);
    await expect(watch.act('stop')).rejects.toThrow('another one');
    await expect(watch.logs({ tail: 100 })).rejects.toThrow('another one');
    await passed(60);
    expect([source.asked.length, source.streams.length]).toEqual([2, 0]);
  });

  test('is not stopped by who is quicker than the first answer, nor is its log read', async () => {
    source.overview = overview({ experiment: experiment({ created_at: 101 }) });
    made(saved());
    await expect(watch.act('stop')).rejects.toThrow('another one');
    await expect(watch.logs({ tail: 100 })).rejects.toThrow('another one');
    expect(source.asked).toEqual(['/experiments/12', '/experiments/12']);
  });

  test('is asked for again by a person who has brought theirs back', async () => {
    source.overview = overview({ experiment: experiment({ created_at: 101 }) });
    await begun(saved());
    source.overview = overview({ seq: 9 });
    watch.retry();
    await passed(0.1);
    expect([connection(), watch.look.overview?.seq]).toEqual(['live', 9]);
  });

  test('that takes its place later is not shown, either', async () => {
    await begun();
    await cut();
    source.overview = overview({ experiment: experiment({ created_at: 999 }) });
    await passed(1);
    expect([connection(), watch.look.overview?.experiment.created_at]).toEqual(['foreign', 100]);
  });
});

describe('saved states', () => {
  test('a newer one of the same experiment is taken in', async () => {
    source.overview = silence;
    await begun(saved());
    watch.adopt(saved({ at: 160, overview: overview({ seq: 9 }), curves: curves(report(3)) }));
    expect([watch.look.overview?.seq, watch.look.at, watch.look.curves.length]).toEqual([9, 160, 1]);
    watch.adopt(saved({ overview: overview({ seq: 8 }) }));
    watch.adopt(saved({ overview: overview({ seq: 9, warnings: ['the same again'] }) }));
    watch.adopt(saved({ overview: overview({ seq: 99, experiment: experiment({ created_at: 1 }) }) }));
    watch.adopt(saved({ number: 13, overview: overview({ seq: 99 }) }));
    expect([watch.look.overview, watch.look.at]).toEqual([overview({ seq: 9 }), 160]);
  });

  test('after a cut, too, it stands in only until the service answers', async () => {
    await begun();
    await cut();
    watch.adopt(saved({ overview: overview({ seq: 9 }), curves: curves(report(3)) }));
    source.curves = curves(report(1), report(2), report(3));
    await passed(1);
    expect([connection(), watch.look.curves[0]?.step]).toEqual(['live', [1, 2, 3]]);
  });

  test('who listens hears it first', async () => {
    await begun();
    watch.adopt(saved({ overview: overview({ seq: 9 }) }));
    expect(watch.look.overview?.seq).toBe(5);
  });

  test('its curves are read whole once the service answers', async () => {
    source.overview = silence;
    await begun(saved());
    watch.adopt(saved({ overview: overview({ seq: 9 }), curves: curves(report(3)) }));
    source.overview = overview({ seq: 10 });
    source.curves = curves(report(1), report(2), report(3));
    await passed(1);
    expect([connection(), watch.look.curves[0]?.step]).toEqual(['live', [1, 2, 3]]);
  });

  test('without curves it leaves those that are there', async () => {
    source.curves = curves(report(1), report(2));
    await begun();
    await cut();
    watch.adopt(saved({ overview: overview({ seq: 9 }), curves: null }));
    expect([watch.look.overview?.seq, watch.look.curves[0]?.step]).toEqual([9, [1, 2]]);
  });
});

describe('verbs', () => {
  test('a verb is posted, and its answer is shown', async () => {
    await begun();
    source.overview = overview({ seq: 6, experiment: experiment({ state: 'paused' }) });
    await watch.act('pause');
    expect(source.asked.at(-1)).toBe('/experiments/12/pause');
    expect(watch.look.overview?.experiment.state).toBe('paused');
  });

  test('stopping what waits ends it at once', async () => {
    source.overview = queued();
    await begun();
    source.overview = done({ experiment: experiment({ state: 'stopped' }) });
    await watch.act('stop');
    await passed(0.1);
    expect([connection(), source.stream.closed]).toEqual(['ended', true]);
  });

  test('a verb that is refused changes nothing and says why', async () => {
    await begun();
    source.overview = new ServiceError(409, 'experiment #12 is paused: there is nothing to pause');
    await expect(watch.act('pause')).rejects.toThrow('nothing to pause');
    expect([connection(), watch.look.overview]).toEqual(['live', overview()]);
  });

  test('stopping while the line is lost fails in words, or brings it back', async () => {
    source.overview = silence;
    await begun(saved());
    await passed(3);
    await expect(watch.act('stop')).rejects.toBe(silence);
    expect(connection()).toBe('lost');
    source.overview = overview({ seq: 6, experiment: experiment({ state: 'stopping' }) });
    await watch.act('stop');
    await passed(0.1);
    expect([connection(), watch.look.overview?.experiment.state]).toEqual(['live', 'stopping']);
  });

  test('an answer that is no experiment is told as such', async () => {
    await begun();
    source.overview = { error: 'what?' } as unknown as FakeSource['overview'];
    await expect(watch.act('stop')).rejects.toThrow("no answer of Daylight's service");
  });

  test('logs are asked for as they are', async () => {
    await begun();
    await watch.logs({ offset: 10, attempt: 2, rank: 1 });
    expect([source.asked.at(-1), source.queries.at(-1)]).toEqual([
      '/experiments/12/logs',
      { offset: 10, attempt: 2, rank: 1 }
    ]);
  });
});

describe('once it is disposed of', () => {
  test('nothing is open and nothing is told', async () => {
    await begun();
    source.stream.say(reported(7));
    const before = looks.length;
    watch.dispose();
    expect([source.stream.closed, jest.getTimerCount()]).toEqual([true, 0]);
    source.stream.say(reported(8));
    watch.retry();
    watch.start();
    watch.adopt(saved({ overview: overview({ seq: 99 }) }));
    watch.subscribe(look => looks.push(look))();
    await passed(60);
    expect([looks.length, watch.look.curves[0]?.step]).toEqual([before, [7]]);
  });

  test.each([0, 0.5, 5])('%p s after a cut no timer is left', async seconds => {
    await begun();
    source.overview = silence;
    await cut();
    await passed(seconds);
    const asked = source.asked.length;
    watch.dispose();
    watch.retry();
    expect(jest.getTimerCount()).toBe(0);
    expect(source.asked.length).toBe(asked);
  });

  test('answers that come late open nothing', async () => {
    const release = source.hold();
    await begun();
    watch.dispose();
    release();
    await passed(60);
    expect([source.streams.length, watch.look.overview]).toEqual([0, null]);
  });

  test('a verb that was on its way changes nothing', async () => {
    await begun();
    const release = source.hold();
    const acting = watch.act('pause');
    watch.dispose();
    release();
    await acting;
    expect([source.streams.length, jest.getTimerCount()]).toEqual([1, 0]);
  });
});
