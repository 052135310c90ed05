/** When an output is brought up to date. */

import type { Overview } from '../src/api/types';
import { ServiceError } from '../src/service/source';
import type { Connection, Look } from '../src/service/watch';
import { WriteBack, writeIn } from '../src/writeback';
import type { WriteState } from '../src/writeback';
import { attempt, done, overview, queued, trial } from './fakes';

const running = (step: number, seq = step): Overview => overview({ seq, trials: [trial({ step })] });

function moment(fields: Partial<WriteState> = {}): WriteState {
  return {
    now: 1000,
    enabled: true,
    visible: true,
    connection: 'live',
    shown: running(20),
    kept: running(10),
    triedAt: null,
    failures: 0,
    ...fields
  };
}

test('a notebook that is opened later is brought up to date at once', () => {
  expect(writeIn(moment())).toBe(0);
  expect(writeIn(moment({ connection: 'ended', shown: done() }))).toBe(0);
});

test('while it goes on the output is written every half a minute', () => {
  expect(writeIn(moment({ triedAt: 990 }))).toBe(20);
  expect(writeIn(moment({ triedAt: 960 }))).toBe(0);
});

test('a change of state waits two seconds after the last writing, no longer', () => {
  expect(writeIn(moment({ kept: queued({ seq: 4 }), triedAt: 999 }))).toBe(1);
  expect(writeIn(moment({ kept: queued({ seq: 4 }), triedAt: 990 }))).toBe(0);
});

test('an end is written once the last word was heard', () => {
  expect(writeIn(moment({ shown: done(), connection: 'live' }))).toBeNull();
  expect(writeIn(moment({ shown: done(), connection: 'ended', triedAt: 999 }))).toBe(1);
});

test.each<Connection>(['connecting', 'lost', 'gone', 'foreign'])(
  'nothing is written while the line is %s',
  connection => {
    expect(writeIn(moment({ connection }))).toBeNull();
  }
);

test('only a page that is looked at writes, and only where the person lets it', () => {
  expect(writeIn(moment({ visible: false }))).toBeNull();
  expect(writeIn(moment({ enabled: false }))).toBeNull();
});

test('nothing is written where nothing was heard yet, or nothing has changed', () => {
  expect(writeIn(moment({ shown: null }))).toBeNull();
  expect(writeIn(moment({ shown: running(10) }))).toBeNull();
});

test('what moves on elsewhere in the service is no change of this experiment', () => {
  expect(writeIn(moment({ shown: done({ seq: 500 }), kept: done(), connection: 'ended' }))).toBeNull();
  const counted = overview({ seq: 11, attempts: [attempt(1, { accepted: 40 })] });
  expect(writeIn(moment({ shown: counted, kept: overview({ seq: 10, attempts: [attempt()] }) }))).toBeNull();
});

test('the order in which metrics are told is no change', () => {
  const shown = overview({ trials: [trial({ metrics: { loss: 1, error: 2 } })] });
  const kept = overview({ trials: [trial({ metrics: { error: 2, loss: 1 } })] });
  expect(writeIn(moment({ shown, kept }))).toBeNull();
});

test('an output that knows more is left alone', () => {
  expect(writeIn(moment({ shown: running(10, 10), kept: running(20, 20) }))).toBeNull();
});

test('after failures it is tried less and less often, also when the state has changed', () => {
  const failed = { kept: queued({ seq: 4 }), triedAt: 1000 };
  const pauses = [1, 2, 3, 9].map(failures => writeIn(moment({ ...failed, failures })));
  expect(pauses).toEqual([30, 60, 120, 600]);
});

/** A page, a clock and a look that a test moves; `written` are the sequence numbers that were shown when it wrote. */
class Scene {
  readonly written: number[] = [];
  visible = true;
  enabled = true;
  fails = false;
  look: Look;
  private readonly _listeners = new Set<(look: Look) => void>();

  constructor(shown: Overview) {
    this.look = look(shown, 'live');
  }

  begin(kept: Overview): WriteBack {
    const page = { enabled: () => this.enabled, visible: () => this.visible, now: () => Date.now() / 1000 };
    return new WriteBack(this, kept, page, async () => {
      this.written.push(this.look.overview?.seq ?? 0);
      await Promise.resolve();
      if (this.fails) {
        throw new ServiceError(503, 'no service');
      }
    });
  }

  subscribe(listener: (look: Look) => void): () => void {
    this._listeners.add(listener);
    return () => void this._listeners.delete(listener);
  }

  async show(shown: Overview, connection: Connection = 'live'): Promise<void> {
    this.look = look(shown, connection);
    this._listeners.forEach(listener => listener(this.look));
    await pass(0);
  }
}

function look(shown: Overview, connection: Connection): Look {
  return {
    number: 12,
    overview: shown,
    curves: [],
    trial: 1,
    captured: [],
    search: null,
    connection,
    heard: true,
    error: null,
    at: 0
  };
}

const pass = (seconds: number): Promise<void> => jest.advanceTimersByTimeAsync(1000 * seconds);

beforeEach(() => jest.useFakeTimers());
afterEach(() => jest.useRealTimers());

test('a training is written as it goes on, at its end, and never again', async () => {
  const scene = new Scene(running(1));
  scene.begin(queued({ seq: 0 }));
  await scene.show(running(1));
  await scene.show(running(2));
  await pass(29);
  expect(scene.written).toEqual([1]);
  await pass(1);
  expect(scene.written).toEqual([1, 2]);
  await scene.show(done({ seq: 9 }), 'ended');
  await pass(3600);
  expect(scene.written).toEqual([1, 2, 9]);
});

test('what was seen while the page was hidden is written when it is looked at again', async () => {
  const scene = new Scene(running(1));
  const writing = scene.begin(running(1));
  scene.visible = false;
  await scene.show(done({ seq: 9 }), 'ended');
  await pass(60);
  expect(scene.written).toEqual([]);
  scene.visible = true;
  writing.consider();
  expect(scene.written).toEqual([9]);
});

test('what somebody else wrote is not written again', async () => {
  const scene = new Scene(running(1));
  const writing = scene.begin(running(1));
  writing.keep(done({ seq: 9 }));
  await scene.show(done({ seq: 9 }), 'ended');
  await pass(60);
  expect(scene.written).toEqual([]);
});

test('a failure is silent, and the end is written all the same', async () => {
  const scene = new Scene(running(1));
  scene.begin(running(1));
  scene.fails = true;
  await scene.show(done({ seq: 9 }), 'ended');
  expect(scene.written).toEqual([9]);
  scene.fails = false;
  await pass(30);
  expect(scene.written).toEqual([9, 9]);
  await pass(3600);
  expect(scene.written).toEqual([9, 9]);
});

test('nothing is written any more when the output is gone', async () => {
  const scene = new Scene(running(1));
  const writing = scene.begin(queued({ seq: 0 }));
  await scene.show(running(1));
  await scene.show(running(2));
  writing.dispose();
  await scene.show(done({ seq: 9 }), 'ended');
  await pass(60);
  expect(scene.written).toEqual([1]);
});
