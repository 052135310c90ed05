/** Code that is loaded when it is first needed. */

import { Part } from '../src/part';

/** Loads whose ends a test decides. */
class Loads {
  count = 0;
  private _end: ((error?: Error) => void)[] = [];
  readonly part = new Part(() => {
    this.count += 1;
    return new Promise<string>((resolve, reject) =>
      this._end.push(error => (error ? reject(error) : resolve('the code')))
    );
  });

  async end(error?: Error): Promise<void> {
    this._end.splice(0).forEach(each => each(error));
    await jest.advanceTimersByTimeAsync(0);
  }
}

function heardBy(part: Part<string>): string[] {
  const heard: string[] = [];
  part.listen(() => heard.push(part.code ?? part.wait));
  return heard;
}

beforeEach(() => {
  jest.useFakeTimers();
  jest.spyOn(console, 'warn').mockImplementation(() => undefined);
});

afterEach(() => {
  jest.useRealTimers();
  jest.restoreAllMocks();
});

test('it is loaded once, however many need it', async () => {
  const loads = new Loads();
  expect(loads.count).toBe(0);
  const both = [loads.part.load(), loads.part.load()];
  await loads.end();
  await Promise.all(both);
  await loads.part.load();
  expect([loads.count, loads.part.code]).toEqual([1, 'the code']);
});

test('a short wait is not mentioned, a long one is', async () => {
  const loads = new Loads();
  const heard = heardBy(loads.part);
  void loads.part.load();
  await jest.advanceTimersByTimeAsync(200);
  expect(heard).toEqual([]);
  await jest.advanceTimersByTimeAsync(200);
  expect(heard).toEqual(['late']);
  await loads.end();
  expect(heard).toEqual(['late', 'the code']);
  await jest.advanceTimersByTimeAsync(1000);
  expect(heard).toHaveLength(2);
});

test('a load that failed says so, and the next one may succeed', async () => {
  const loads = new Loads();
  const heard = heardBy(loads.part);
  const first = loads.part.load();
  await loads.end(new Error('no network'));
  await first;
  expect([heard, loads.part.code]).toEqual([['failed'], null]);
  void loads.part.load();
  await jest.advanceTimersByTimeAsync(0);
  expect(heard.at(-1)).toBe('late'); // at once: somebody has pressed a button
  await loads.end();
  expect(heard.at(-1)).toBe('the code');
  expect(loads.count).toBe(2);
});

test('who does not listen any more is not called', async () => {
  const loads = new Loads();
  const heard: string[] = [];
  const unlisten = loads.part.listen(() => heard.push('one'));
  loads.part.listen(() => heard.push('other'));
  unlisten();
  void loads.part.load();
  await loads.end();
  expect(heard).toEqual(['other']);
});

test('a listener that throws does not keep the others from the code', async () => {
  const complaints = jest.spyOn(console, 'error').mockImplementation(() => undefined);
  const loads = new Loads();
  loads.part.listen(() => {
    throw new Error('damaged');
  });
  const heard = heardBy(loads.part);
  void loads.part.load();
  await loads.end();
  expect([heard, loads.part.wait, complaints.mock.calls.length]).toEqual([['the code'], 'soon', 1]);
});
