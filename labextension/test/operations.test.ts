/** The operations of a trace: recorded on request, shown when they are there, and what is told meanwhile. */

import type { Artifact, Overview } from '../src/api/types';
import { canRecord, isRecording } from '../src/model/traces';
import type { Look } from '../src/service/watch';
import { Operations } from '../src/view/operations';
import { attempt, overview, trial } from './fakes';
import { fakeDocument, textsOf } from './fakedom';

const STEPS = [
  { rank: 0, first: 4, last: 13, operations: [{ name: 'aten::addmm', calls: 1200, cpu_ms: 3.14159, device_ms: 0 }] },
  { rank: 3, first: 4, last: 13, operations: [] }
];
const RECORDED = { id: '5f3a', steps: 10, ranks: [0] };

function named(name: string, digest = '01'): Artifact {
  return { trial: 1, attempt: 1, name, step: 3, at: 100, size: 20, digest, media: 'application/json', file: name };
}

/** The service: what it is asked, and what it answers. */
class Service {
  readonly asked: string[] = [];
  artifacts: Artifact[] = [];
  refuses = '';

  async act(verb: string, body: unknown): Promise<void> {
    this.asked.push(`${verb} ${JSON.stringify(body)}`);
    if (this.refuses) {
      throw new Error(this.refuses);
    }
    await Promise.resolve();
  }

  async ask(path: string): Promise<unknown> {
    this.asked.push(path);
    return Promise.resolve({ artifacts: this.artifacts });
  }

  async artifact(_trial: number, name: string): Promise<Uint8Array<ArrayBuffer>> {
    this.asked.push(name);
    return Promise.resolve(new TextEncoder().encode(JSON.stringify(STEPS)));
  }
}

interface Shown {
  service: Service;
  update: (fields: Partial<Overview>) => void;
  does: (what: 'toggle' | 'click') => Promise<void>;
  cells: () => unknown;
  said: () => unknown;
  offers: () => boolean;
}

interface Pressed {
  open: boolean;
  happens: (what: string) => void;
}

function made(): Shown {
  const service = new Service();
  const part = new Operations(service);
  const root = part.root as unknown as Pressed;
  const record = part.root.children[1] as unknown as Pressed & { hidden: boolean };
  return {
    service,
    update: fields => {
      part.update({ overview: overview(fields), connection: 'live' } as Look, 1);
    },
    does: async what => {
      root.open = true;
      (what === 'click' ? record : root).happens(what);
      await new Promise(resolve => setTimeout(resolve, 5));
    },
    cells: () => textsOf(part.root, 'td'),
    said: () => textsOf(part.root, 'p')[0],
    offers: () => !record.hidden
  };
}

const RUNNING = { trials: [trial()], attempts: [attempt()] };

beforeAll(fakeDocument);

test('a trace can be recorded while a training runs that has steps, and one at a time', () => {
  const running = overview(RUNNING);
  expect(canRecord(running, 1)).toBe(true);
  expect(canRecord(running, 2)).toBe(false);
  expect(canRecord(overview({ ...RUNNING, trials: [trial({ state: 'paused' })] }), 1)).toBe(false);
  const command = { ...running.experiment, config: { ...running.experiment.config, form: 'command' as const } };
  expect(canRecord({ ...running, experiment: command }, 1)).toBe(false);
  const recording = overview({ ...RUNNING, attempts: [attempt(1, { trace: RECORDED })] });
  expect([isRecording(recording, 1), canRecord(recording, 1)]).toEqual([true, false]);
  expect(isRecording(overview({ ...RUNNING, attempts: [attempt(1, { trace: RECORDED, ended_at: 9 })] }), 1)).toBe(
    false
  );
});

test('a closed fold asks for nothing', () => {
  const { service, update } = made();
  update({ ...RUNNING, artifacts_seq: 7 });
  expect(service.asked).toEqual([]);
});

test('the operations of a trace are shown when it has been recorded', async () => {
  const { service, update, does, cells, said, offers } = made();
  update(RUNNING);
  await does('toggle');
  expect(said()).toMatch(/^No trace has been recorded/);
  await does('click');
  expect(service.asked).toEqual(['trace {"trial":1,"steps":10,"ranks":[0]}']);
  update({ ...RUNNING, attempts: [attempt(1, { trace: RECORDED })] });
  expect(said()).toMatch(/^Recording 10 steps/);
  expect(offers()).toBe(false);
  service.artifacts = [named('architecture'), named('trace-operations')];
  update({ ...RUNNING, artifacts_seq: 8 });
  await does('toggle');
  expect(cells()).toEqual(['aten::addmm', '1,200', '3.14', '0.00']);
  expect(said()).toMatch(/^steps 4 to 13 of rank 0; .*trace-rank-0\.json, trace-rank-3\.json/);
  expect(offers()).toBe(true);
});

test('an artifact that is no trace fetches nothing again', async () => {
  const { service, update, does } = made();
  service.artifacts = [named('trace-operations')];
  update({ ...RUNNING, artifacts_seq: 8 });
  await does('toggle');
  service.asked.length = 0;
  update({ ...RUNNING, artifacts_seq: 9 });
  await new Promise(resolve => setTimeout(resolve, 5));
  expect(service.asked).toEqual(['/artifacts']);
});

test('a refusal is shown until the next try', async () => {
  const { service, update, does, said } = made();
  update(RUNNING);
  service.refuses = 'attempt 12.1-1 is recording a trace already';
  await does('click');
  expect(said()).toBe(service.refuses);
  service.refuses = '';
  await does('click');
  update(RUNNING);
  expect(said()).toMatch(/^No trace has been recorded/);
});
