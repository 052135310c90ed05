/** A watch of experiment #12 in time that a test lets pass; what it leaves behind fails the test. */

import type { Saved } from '../src/model/saved';
import type { ConnectionOptions } from '../src/service/connection';
import type { ServiceError } from '../src/service/source';
import { Watch } from '../src/service/watch';
import type { Look } from '../src/service/watch';
import { FakeSource, snapped } from './fakes';

export const NOW = 1000; // seconds: when a test begins

export let source: FakeSource;
export let watch: Watch;
export let looks: Look[];

beforeEach(() => {
  jest.useFakeTimers({ now: NOW * 1000 });
  source = new FakeSource();
});

afterEach(() => {
  watch.dispose();
  expect(jest.getTimerCount()).toBe(0);
  jest.useRealTimers();
});

/** A watch that has not begun; chance 0.5 makes pauses as long as they are said to be. */
export function made(from: Saved | null = null, world: Partial<ConnectionOptions> = {}): void {
  watch = new Watch(source, 12, from, { clock: () => Date.now() / 1000, chance: () => 0.5, ...world });
  looks = [];
  watch.subscribe(look => looks.push(look));
}

/** One that has. */
export async function begun(from: Saved | null = null): Promise<void> {
  made(from);
  watch.start();
  await passed(0.1);
}

/** Time passes, and answers come. */
export async function passed(seconds: number): Promise<void> {
  await jest.advanceTimersByTimeAsync(seconds * 1000);
}

export async function cut(error: ServiceError = snapped): Promise<void> {
  source.stream.listener.closed(error);
  await passed(0.06);
}

export function connection(): string {
  return watch.look.connection;
}
