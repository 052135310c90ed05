/** How often a page asks while something changes, whatever becomes of the clock on the wall. */

import { Polling } from '../src/view/search/polling';

const pass = (seconds: number): Promise<void> => jest.advanceTimersByTimeAsync(1000 * seconds);

let asked: number;
let asking: Polling<null>;

beforeEach(() => {
  jest.useFakeTimers();
  asked = 0;
  const ask = (): Promise<null> => {
    asked += 1;
    return Promise.resolve(null);
  };
  const nothing = (): void => undefined;
  asking = new Polling(ask, nothing, nothing, 2_000);
});

afterEach(() => {
  asking.dispose();
  expect(jest.getTimerCount()).toBe(0);
  jest.useRealTimers();
});

test('what changes is asked for at once, and then after its pause', async () => {
  asking.want();
  await pass(0);
  expect(asked).toBe(1);
  asking.want();
  await pass(1.9);
  expect(asked).toBe(1);
  await pass(0.1);
  expect(asked).toBe(2);
});

test.each([-3600, 3600])('a clock that is set by %d s makes no pause longer or shorter', async seconds => {
  asking.want();
  await pass(0);
  jest.setSystemTime(Date.now() + 1000 * seconds);
  asking.want();
  await pass(1.9);
  expect(asked).toBe(1);
  await pass(0.1);
  expect(asked).toBe(2);
});
