/** A watch shows what is known, goes on by itself, and does what it is asked to. */

import { ServiceError } from '../src/service/source';
import {
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
  trial
} from './fakes';
import { NOW, source, watch, looks, made, begun, passed, cut, connection } from './watching';

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
    expect([connection(), watch.look.error]).toEqual(['gone', 'there is no experiment #12']);
    expect(source.asked).toHaveLength(2);
  });
});

describe('live', () => {
  test('each part folds only what it does not include yet', async () => {
    source.overview = overview({ seq: 50, trials: [trial({ step: 30 })] });
    source.curves = curves(report(1), report(20));
    await begun();
    source.stream.say(
      reported(20),
      reported(30),
      said(40, { type: 'note', data: { text: 'old', level: 'warning', attempt: 1 } }),
      reported(51)
    );
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
    source.stream.say(said(8, { type: 'note', data: { text: 'disk full', level: 'warning', attempt: 1 } }));
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
    source.overview = overview({ trials: [trial({ step: 10 })] });
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
  test('the reason is asked for every five seconds, and what its start does, until it reports', async () => {
    source.overview = queued();
    await begun();
    source.overview = queued({
      wait: { reason: 'next in queue', place: 1, starts: false, estimate: 60, earliest: 30, latest: 90 }
    });
    await passed(5);
    expect(watch.look.overview?.wait?.reason).toBe('next in queue');
    await passed(5);
    expect(source.asked.slice(2)).toEqual(['/experiments/12', '/experiments/12']);
    source.stream.say(said(6, { type: 'trial', data: trial({ state: 'starting' }) }));
    const starting = 'preparing 2 slots: importing torch (12 s)';
    source.overview = overview({ seq: 6, starting, trials: [trial({ state: 'starting' })] });
    await passed(0.5);
    expect([watch.look.overview?.wait, watch.look.overview?.starting]).toEqual([null, starting]);
    await passed(5);
    expect(source.asked).toHaveLength(6);
    source.stream.say(reported(7));
    await passed(60);
    expect([source.asked.length, watch.look.overview?.starting]).toEqual([7, '']); // the last one was on its way
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
    source.stream.say(said(6, { type: 'experiment', data: experiment({ state: 'paused' }) }));
    await passed(60);
    expect(source.asked).toHaveLength(3);
  });
});

describe("another Daylight's experiment of this number", () => {
  test.each([{ created_at: 101 }, { snapshot: '1'.repeat(64) }])('is not shown: %p', async other => {
    source.overview = overview({ experiment: experiment({ name: 'theirs', ...other }) });
    const before = saved();
    await begun(before);
    expect(connection()).toBe('foreign');
    expect(watch.look.error).toBe('another Daylight has this experiment; here #12 is another one');
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

  test('a search and its trials are steered in the same way', async () => {
    await begun();
    await watch.act('trials/7/promote');
    await watch.act('extend', { trials: 30 });
    const acts = source.asked.map((path, place) => [path, source.queries[place]]);
    expect(acts).toContainEqual(['/experiments/12/trials/7/promote', undefined]);
    expect(acts).toContainEqual(['/experiments/12/extend', { trials: 30 }]);
  });

  test('a completed search that gets more trials is listened to again', async () => {
    source.overview = done();
    await begun();
    expect(connection()).toBe('ended');
    const streams = source.streams.length;
    source.overview = overview({ seq: 91 });
    await watch.act('extend', { trials: 30 });
    await passed(0.1);
    expect([connection(), source.streams.length]).toEqual(['live', streams + 1]);
    source.stream.say(said(92, { type: 'trial', data: trial({ state: 'paused' }) }));
    expect(watch.look.overview?.trials[0]?.state).toBe('paused');
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
