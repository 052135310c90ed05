/** A view whose kernel speaks for the service: one that is free, one that is busy, one that is gone. */

import type { Message } from '../src/api/types';
import { CommSource } from '../src/service/comm';
import type { Channel, FromKernel } from '../src/service/comm';
import type { ServiceError } from '../src/service/source';
import { Watch } from '../src/service/watch';
import type { Saved } from '../src/model/saved';
import { curves, overview, report, reported, said, saved, experiment } from './fakes';

interface Sent {
  type?: string;
  after?: number;
  id?: number;
  method?: string;
  path?: string;
  query?: unknown;
}

/** A widget's model whose kernel says what a test tells it to. */
class FakeModel implements Channel {
  readonly sent: Sent[] = [];
  private readonly _listeners = new Map<string, Set<(content: FromKernel) => void>>();

  constructor(private _saved: Saved = saved()) {}

  get(name: 'saved'): Saved {
    expect(name).toBe('saved');
    return this._saved;
  }

  send(content: unknown): void {
    this.sent.push(content as Sent);
  }

  on(event: string, listener: (content: FromKernel) => void): void {
    this._listeners.set(event, (this._listeners.get(event) ?? new Set()).add(listener));
  }

  off(event: string, listener: (content: FromKernel) => void): void {
    this._listeners.get(event)?.delete(listener);
  }

  get listeners(): number {
    return [...this._listeners.values()].reduce((sum, each) => sum + each.size, 0);
  }

  happens(event: string, content?: FromKernel): void {
    this._listeners.get(event)?.forEach(listener => listener(content as FromKernel));
  }

  says(content: FromKernel): void {
    this.happens('msg:custom', content);
  }

  tells(after: number, ...messages: Message[]): void {
    this.says({ type: 'messages', after, messages });
  }

  keeps(now: Saved): void {
    this._saved = now;
    this.happens('change:saved');
  }

  /** The newest question about a path. */
  question(path: string): number {
    const found = this.sent.filter(each => each.path === path).at(-1);
    if (found?.id === undefined) {
      throw new Error(`nobody asked for ${path}`);
    }
    return found.id;
  }

  answers(path: string, body: unknown, status = 200): void {
    this.says({ type: 'answer', id: this.question(path), status, body });
  }

  said(type: string): Sent[] {
    return this.sent.filter(each => each.type === type);
  }
}

class Heard {
  readonly seqs: number[] = [];
  opened = 0;
  error: ServiceError | null = null;
  readonly listener = {
    opened: () => {
      this.opened += 1;
    },
    message: (message: Message) => void this.seqs.push(message.seq),
    closed: (error: ServiceError) => void (this.error = error)
  };
}

const ONE = '/experiments/12';

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

/** Let time go by, and everything that waited for it happen. */
async function pass(ms: number): Promise<void> {
  await jest.advanceTimersByTimeAsync(ms);
}

/** A promise's error, without waiting for the promise. */
function failure(promise: Promise<unknown>): { error: ServiceError | null } {
  const found: { error: ServiceError | null } = { error: null };
  promise.catch((error: unknown) => (found.error = error as ServiceError));
  return found;
}

describe('a question', () => {
  test('about curves is answered with where to go on, although no report has that number', async () => {
    const model = new FakeModel();
    const asked = new CommSource(model, 12).get(`${ONE}/curves`);
    model.answers(`${ONE}/curves`, curves());
    await expect(asked).resolves.toEqual({ ...curves(), seq: 5 });
  });

  test('is sent with its query, and its answer comes back', async () => {
    const model = new FakeModel();
    const asked = new CommSource(model, 12).get(`${ONE}/logs`, { tail: 100 });
    expect(model.sent).toEqual([
      { id: model.question(`${ONE}/logs`), method: 'GET', path: `${ONE}/logs`, query: { tail: 100 } }
    ]);
    model.answers(`${ONE}/logs`, { text: 'hello' });
    await expect(asked).resolves.toEqual({ text: 'hello' });
  });

  test('about a file is answered in letters, and comes as bytes', async () => {
    const model = new FakeModel();
    const asked = new CommSource(model, 12).file(`${ONE}/trials/7/artifacts/net`);
    expect(model.sent[0]).toMatchObject({ method: 'GET', path: `${ONE}/trials/7/artifacts/net`, query: {} });
    model.answers(`${ONE}/trials/7/artifacts/net`, { base64: 'AP+A' });
    expect(new Uint8Array(await (await asked).arrayBuffer())).toEqual(new Uint8Array([0, 255, 128]));
  });

  test('to act is sent with what is asked for', () => {
    const model = new FakeModel();
    void new CommSource(model, 12).post(`${ONE}/extend`, { trials: 9 });
    expect(model.sent).toMatchObject([{ method: 'POST', path: `${ONE}/extend`, query: { trials: 9 } }]);
  });

  test('fails with the status and the words of the service', async () => {
    const model = new FakeModel();
    const asked = new CommSource(model, 12).post(`${ONE}/resume`);
    model.answers(`${ONE}/resume`, { error: 'Conflict', message: '#12 has ended' }, 409);
    await expect(asked).rejects.toMatchObject({ status: 409, message: '#12 has ended' });
  });

  test('does not take the answer to another one', async () => {
    const model = new FakeModel();
    const source = new CommSource(model, 12);
    const [one, two] = [source.get(`${ONE}/logs`), source.get(`${ONE}/source`)];
    model.answers(`${ONE}/source`, 2);
    model.answers(`${ONE}/logs`, 1);
    await expect(Promise.all([one, two])).resolves.toEqual([1, 2]);
  });

  test('that a busy kernel has not answered says that it will', async () => {
    const model = new FakeModel();
    const stopping = failure(new CommSource(model, 12).post(`${ONE}/stop`));
    for (let seconds = 0; seconds < 15; seconds += 5) {
      model.says({ type: 'beat' });
      await pass(5_000);
    }
    expect(stopping.error?.message).toBe('the kernel is busy; this answer comes when it is done');
  });

  test('that nobody hears says what to do', async () => {
    const stopping = failure(new CommSource(new FakeModel(), 12).post(`${ONE}/stop`));
    await pass(15_000);
    expect(stopping.error?.message).toBe(
      'the kernel of this view is gone or does not answer; %dl show 12 shows it again'
    );
  });

  test('to a kernel that has been silent before is given up soon, and one that is back is heard', async () => {
    const model = new FakeModel();
    const source = new CommSource(model, 12);
    model.happens('comm_live_update');
    const asked = failure(source.get(ONE));
    await pass(3_000);
    expect(asked.error?.message).toContain('%dl show 12');
    const again = source.get(ONE);
    model.answers(ONE, overview());
    await expect(again).resolves.toEqual(overview());
  });

  test('is not asked a second time while a busy kernel has the first one', async () => {
    const model = new FakeModel();
    const source = new CommSource(model, 12);
    failure(source.get(`${ONE}/logs`));
    model.says({ type: 'beat' });
    await pass(5_000);
    const again = failure(source.get(`${ONE}/logs`));
    await pass(0);
    expect(again.error?.message).toContain('busy');
    expect(model.sent).toHaveLength(1);
  });
});

describe('a busy kernel', () => {
  test('answers by what it keeps in the model', async () => {
    const model = new FakeModel(saved({ curves: curves(report(3)) }));
    const source = new CommSource(model, 12);
    const asked = Promise.all([source.get(ONE), source.get(`${ONE}/curves`)]);
    model.says({ type: 'beat' });
    await pass(4_000);
    const [first, second] = await asked;
    expect(first).toEqual(overview());
    expect(second).toEqual({ ...curves(report(3)), seq: 5 }); // nothing up to the overview's number is missing in them
  });

  test('answers by what it keeps also where the clock is set back meanwhile', async () => {
    const model = new FakeModel();
    const asked = new CommSource(model, 12).get(ONE);
    model.says({ type: 'beat' });
    jest.setSystemTime(Date.now() - 3_600_000);
    let answer: unknown;
    void asked.then(found => (answer = found));
    await pass(4_000);
    expect(answer).toEqual(overview());
  });

  test('does not answer by what is older than what was heard', async () => {
    const model = new FakeModel();
    const source = new CommSource(model, 12);
    const heard = new Heard();
    source.watch(5, 12, heard.listener);
    model.tells(5, reported(6));
    let answer: unknown;
    void source.get(ONE).then(found => (answer = found));
    model.says({ type: 'beat' });
    await pass(5_000);
    expect(answer).toBeUndefined();
    model.keeps(saved({ overview: overview({ seq: 6 }) }));
    await pass(0);
    expect(answer).toEqual(overview({ seq: 6 }));
  });

  test('can be watched live from the first moment', async () => {
    const model = new FakeModel(saved({ curves: curves(report(3)) }));
    const watch = new Watch(new CommSource(model, 12), 12, model.get('saved'));
    watch.start();
    model.says({ type: 'beat' });
    model.tells(5, reported(8));
    await pass(4_000);
    model.tells(8, reported(9));
    await pass(100);
    expect(watch.look.connection).toBe('live');
    expect(watch.look.overview?.trials[0]?.step).toBe(9);
    expect(watch.look.curves[0]?.step).toEqual([3, 8, 9]);
    watch.dispose();
  });

  test('fills what the page has missed by the next state that it keeps', async () => {
    const model = new FakeModel(saved({ curves: curves(report(3)) }));
    const watch = new Watch(new CommSource(model, 12), 12, model.get('saved'));
    watch.start();
    model.tells(7, reported(8)); // 6 and 7 came before the page was drawn
    await pass(5_000);
    expect(watch.look.connection).toBe('connecting');
    model.keeps(saved({ overview: overview({ seq: 8 }), curves: curves(report(3), report(7), report(8)) }));
    await pass(100);
    model.tells(8, reported(9));
    await pass(100);
    expect(watch.look.connection).toBe('live');
    expect(watch.look.curves[0]?.step).toEqual([3, 7, 8, 9]);
    watch.dispose();
  });
});

describe('the stream', () => {
  test('opens with the first sign of life and tells each message once', () => {
    const model = new FakeModel();
    const heard = new Heard();
    new CommSource(model, 12).watch(5, 12, heard.listener);
    expect(heard.opened).toBe(0);
    model.says({ type: 'beat' });
    model.tells(5, reported(6), reported(7));
    model.tells(5, reported(6), reported(7), reported(9)); // another page has asked for them again
    expect(heard.opened).toBe(1);
    expect(heard.seqs).toEqual([6, 7, 9]);
  });

  test('asks for what was missed, and holds back what came after it', () => {
    const model = new FakeModel();
    const heard = new Heard();
    new CommSource(model, 12).watch(5, 12, heard.listener);
    model.tells(8, reported(9));
    model.tells(9, reported(10));
    expect(heard.seqs).toEqual([]);
    expect(model.said('watch')).toEqual([{ type: 'watch', after: 5 }]);
    model.tells(5, reported(7), reported(8));
    model.tells(8, reported(9), reported(10));
    expect(heard.seqs).toEqual([7, 8, 9, 10]);
  });

  test('tells a display that was made later what the first one heard', async () => {
    const model = new FakeModel();
    const source = new CommSource(model, 12);
    const [first, second] = [new Heard(), new Heard()];
    source.watch(5, 12, first.listener);
    model.tells(5, reported(6));
    source.watch(5, 12, second.listener);
    await pass(0);
    expect(second.seqs).toEqual([6]);
    expect(second.opened).toBe(1);
  });

  test('tells nothing more once it was closed, even within a batch', () => {
    const model = new FakeModel();
    const seqs: number[] = [];
    const stream = new CommSource(model, 12).watch(5, 12, {
      ...new Heard().listener,
      message: message => {
        seqs.push(message.seq);
        stream.close();
      }
    });
    model.tells(5, reported(6), reported(7));
    expect(seqs).toEqual([6]);
  });

  test('lets the kernel know that somebody looks, until nobody does', async () => {
    const model = new FakeModel();
    const stream = new CommSource(model, 12).watch(5, 12, new Heard().listener);
    for (let seconds = 0; seconds < 40; seconds += 10) {
      model.says({ type: 'beat' });
      await pass(10_000);
    }
    expect(model.said('here')).toHaveLength(3);
    stream.close();
    await pass(60_000);
    expect(model.said('here')).toHaveLength(3);
  });

  test('ends when the kernel has been silent for too long', async () => {
    const model = new FakeModel();
    const heard = new Heard();
    new CommSource(model, 12).watch(5, 12, heard.listener);
    model.says({ type: 'beat' });
    await pass(14_000);
    expect(heard.error).toBeNull();
    await pass(1_000);
    expect(heard.error?.message).toBe('the kernel of this view is gone or does not answer; %dl show 12 shows it again');
  });

  test('ends at once where the host tells that the kernel restarts', () => {
    const model = new FakeModel();
    const heard = new Heard();
    new CommSource(model, 12).watch(5, 12, heard.listener);
    model.happens('comm_live_update');
    expect(heard.error?.message).toContain('%dl show 12');
  });

  test('ends with what the service said', () => {
    const model = new FakeModel();
    const heard = new Heard();
    new CommSource(model, 12).watch(5, 12, heard.listener);
    model.says({ type: 'closed', status: 404, message: 'there is no experiment 12' });
    expect(heard.error).toMatchObject({ status: 404, message: 'there is no experiment 12' });
  });
});

test('a view that is thrown away leaves nothing behind', async () => {
  const model = new FakeModel();
  const source = new CommSource(model, 12);
  source.watch(5, 12, new Heard().listener);
  failure(source.get(ONE));
  source.dispose();
  expect(model.listeners).toBe(0);
  const before = model.sent.length;
  await pass(100_000);
  expect(model.sent).toHaveLength(before);
  expect(jest.getTimerCount()).toBe(0);
});

test('an experiment that ends in a busy kernel is shown to its end', async () => {
  const model = new FakeModel(saved({ curves: curves() }));
  const watch = new Watch(new CommSource(model, 12), 12, model.get('saved'));
  watch.start();
  await pass(0);
  model.answers(ONE, overview());
  model.answers(`${ONE}/curves`, curves());
  await pass(100);
  expect(watch.look.connection).toBe('live');
  const end = experiment({ state: 'completed' });
  model.tells(5, reported(6), said(7, { type: 'experiment', data: end }));
  model.keeps(saved({ overview: overview({ experiment: end, seq: 7 }), curves: curves(report(6)) }));
  await pass(5_000);
  expect(watch.look.connection).toBe('ended');
  expect(watch.look.curves[0]?.step).toEqual([6]);
  watch.dispose();
});
