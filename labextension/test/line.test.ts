/** A line that is cut, blocked or at its end: it comes back by itself, and says how it stands. */

import { stateOf } from '../src/model/overview';
import { Experiments } from '../src/panel/experiments';
import { LiveSettings } from '../src/panel/settings';
import { ServiceError } from '../src/service/source';
import {
  asha,
  attempt,
  curves,
  done,
  experiment,
  missing,
  overview,
  queued,
  report,
  reported,
  said,
  saved,
  silence
} from './fakes';
import { begun, connection, cut, looks, made, NOW, passed, source, watch } from './watching';

describe('after a cut', () => {
  test('the last look stays, and says when it is tried again', async () => {
    await begun();
    source.stream.say(reported(7));
    source.overview = silence;
    await cut();
    expect(connection()).toBe('lost');
    expect(watch.look.error).toBe('the connection was cut (1006); trying again in 0.5 s');
    expect(watch.look.curves[0]?.step).toEqual([7]);
  });

  test('pauses grow to 15 s, and chance moves each a little', async () => {
    await begun();
    source.overview = silence;
    await cut();
    const said: (string | undefined)[] = [];
    for (const pause of [0.5, 1, 2, 4, 8, 15, 15]) {
      said.push(watch.look.error?.split('again ')[1]);
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
    made(null, { clock: () => 0, chance: () => chance });
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
    expect([connection(), watch.look.error, source.stream.after]).toEqual(['live', null, 70_009]);
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
    expect(watch.look.error).toContain('in 1 s');
    await passed(1);
    source.stream.say(reported(7));
    await cut();
    expect(watch.look.error).toContain('in 0.5 s');
  });

  test('a stream that was open for long makes the next pause short', async () => {
    await begun();
    await cut();
    await passed(20);
    await cut();
    expect(watch.look.error).toContain('in 0.5 s');
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
    expect([connection(), watch.look.error]).toEqual(['live', expect.stringContaining('looking every 5 s')]);
    source.curves = curves(report(1), report(2));
    const before = source.asked.length;
    await passed(50);
    expect([connection(), watch.look.curves[0]?.step]).toEqual(['live', [1, 2]]);
    expect(source.asked).toHaveLength(before + 2 * 10);
    [source.opens, source.cuts, source.refuses] = [true, false, false];
    await passed(10.1);
    expect([connection(), watch.look.error]).toEqual(['live', null]);
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
    expect(watch.look.error).not.toBeNull();
    source.stream.say(reported(7));
    expect([connection(), watch.look.error]).toEqual(['live', null]);
  });

  test('without a stream its end is heard, and a service that is gone is missed', async () => {
    source.opens = false;
    await begun();
    await passed(2);
    source.overview = silence;
    await passed(5.1);
    expect([connection(), watch.look.error]).toEqual(['lost', expect.stringContaining('no answer; trying again')]);
    source.overview = done();
    await passed(30);
    expect(connection()).toBe('ended');
  });

  test('what has several lines keeps them', async () => {
    source.overview = new ServiceError(503, 'it could not start. Its log ends:\n  no space left');
    await begun();
    expect(watch.look.error).toMatch(/no space left\ntrying again in /);
  });

  test('trying now does not wait for the pause', async () => {
    source.overview = silence;
    await begun();
    await passed(10);
    source.overview = overview();
    watch.retry();
    expect(watch.look.error).toBe('no answer; trying again now');
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
    expect(watch.look.error).toBe('log in again; trying again in 0.5 s');
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
    expect(watch.look.error).toBe('experiment #12 is no longer there; this is how it was last seen');
    await passed(60);
    expect(source.asked).toHaveLength(2);
    watch.retry();
    await passed(0.1);
    expect(connection()).toBe('live');
  });
});

describe('in a host without streams', () => {
  test('it is polled to its end, without a word, and not while it rests', async () => {
    source.streamless = true;
    await begun();
    source.curves = curves(report(1), report(2));
    await passed(5.1);
    expect([connection(), watch.look.error]).toEqual(['live', null]);
    expect(watch.look.curves[0]?.step).toEqual([1, 2]);
    watch.rest();
    const before = source.asked.length;
    await passed(60);
    expect(source.asked).toHaveLength(before);
    source.overview = done();
    watch.wake();
    await passed(0.1);
    expect(connection()).toBe('ended');
  });

  test('a service that does not answer is tried again, and polled once more', async () => {
    source.streamless = true;
    await begun();
    source.overview = silence;
    await passed(5.1);
    expect(connection()).toBe('lost');
    source.overview = overview();
    await passed(1);
    expect([connection(), watch.look.error]).toEqual(['live', null]);
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
    expect([connection(), watch.look.error, watch.look.curves[0]?.step]).toEqual(['ended', null, [7]]);
  });

  test('an experiment that had ended before is read twice: it may have ended between two answers', async () => {
    source.overview = done();
    await begun();
    expect([connection(), source.asked.length, source.streams.length]).toEqual(['ended', 4, 0]);
  });

  test('a completed search that was given more trials elsewhere is listened to again', async () => {
    source.overview = done({
      experiment: experiment({ state: 'completed', config: { ...experiment().config, search: asha } })
    });
    await begun();
    const [looked, asked] = [looks.length, source.asked.length];
    await passed(90);
    expect([connection(), looks.length, source.asked.slice(asked)]).toEqual([
      'ended',
      looked,
      Array(3).fill('/experiments/12')
    ]);
    source.overview = silence;
    await passed(60);
    expect([connection(), looks.length]).toEqual(['ended', looked]);
    source.overview = overview({ seq: 91 });
    await passed(30.1);
    expect([connection(), source.streams.length]).toEqual(['live', 1]);
    expect(watch.look.overview?.seq).toBe(91);
  });

  test('a search that went on elsewhere and has ended again is read whole', async () => {
    const search = experiment({ state: 'completed', config: { ...experiment().config, search: asha } });
    source.overview = done({ experiment: search });
    await begun();
    source.overview = done({ experiment: search, seq: 120 });
    source.curves = curves(report(1), report(80));
    await passed(30.1);
    expect([connection(), watch.look.overview?.seq, watch.look.curves[0]?.step]).toEqual(['ended', 120, [1, 80]]);
    const asked = source.asked.length;
    await passed(30);
    expect(source.asked).toHaveLength(asked + 1); // and goes on to be asked for
  });

  test('of a training that has ended nothing more is asked', async () => {
    source.overview = done();
    await begun();
    const asked = source.asked.length;
    await passed(600);
    expect(source.asked).toHaveLength(asked);
  });

  test('what the panel does to it after its end is asked for', async () => {
    source.overview = done();
    await begun();
    const panel = new Experiments(source, new LiveSettings());
    source.overview = done({ seq: 120, experiment: experiment({ state: 'completed', deleted_at: NOW }) });
    await panel.act(13, 'delete');
    await passed(0.1);
    expect(watch.look.overview?.seq).not.toBe(120);
    await panel.act(12, 'delete');
    await passed(0.1);
    expect([connection(), watch.look.overview && stateOf(watch.look.overview)]).toEqual(['ended', 'deleted']);
    panel.dispose();
  });

  test('a saved end is shown at once and read whole', async () => {
    source.overview = done();
    source.curves = curves(report(1), report(80));
    await begun(saved({ overview: done() }));
    expect([connection(), source.asked.length, watch.look.curves.length]).toEqual(['ended', 2, 1]);
    expect(watch.look.heard).toBe(true);
  });

  test('a saved end needs no service', async () => {
    source.overview = silence;
    await begun(saved({ overview: done(), curves: curves(report(1)) }));
    await passed(600);
    expect([connection(), watch.look.error, source.asked.length]).toEqual(['ended', null, 2]);
    expect([watch.look.at, watch.look.curves[0]?.step, watch.look.heard]).toEqual([150, [1], false]);
  });

  test('a saved end whose experiment is not there any more says so', async () => {
    source.overview = missing;
    await begun(saved({ overview: done() }));
    expect([connection(), watch.look.overview?.experiment.state]).toEqual(['gone', 'completed']);
  });
});
