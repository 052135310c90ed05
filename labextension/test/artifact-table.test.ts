/** The table of an artifact: of the file that is named above it, and of no other. */

import type { Artifact } from '../src/api/types';
import { ArtifactTable } from '../src/view/artifacttable';
import { fakeDocument, textsOf } from './fakedom';

const FILES: Record<string, string> = { predictions: 'predicted,true\n1,2\n3,4', errors: 'worst\n2' };

/** A connection whose answers wait until they are let through, in any order. */
class Held {
  readonly asked: string[] = [];
  private readonly _waiting: (() => void)[] = [];
  down = false;

  artifact(_trial: number, name: string): Promise<Uint8Array<ArrayBuffer>> {
    this.asked.push(name);
    return new Promise((resolve, reject) =>
      this._waiting.push(() =>
        this.down ? reject(new Error('no answer')) : resolve(new TextEncoder().encode(FILES[name]))
      )
    );
  }

  async answer(place = 0): Promise<void> {
    this._waiting.splice(place, 1).forEach(each => each());
    await new Promise(setImmediate);
  }
}

function named(name: string): Artifact {
  const file = { step: 3, at: 100, size: 20, digest: '00', media: 'text/csv', file: `${name}.csv` };
  return { trial: 1, attempt: 1, name, ...file };
}

function made(): { held: Held; table: ArtifactTable; cells: () => unknown; note: () => string | null } {
  const held = new Held();
  const table = new ArtifactTable(held);
  return {
    held,
    table,
    cells: () => textsOf(table.root, 'td'),
    note: () => textsOf(table.root, 'p')[0] ?? null
  };
}

beforeAll(fakeDocument);

test('another file is asked for: the rows of the one before do not stay below its name', async () => {
  const { held, table, cells, note } = made();
  table.update(named('predictions'));
  await held.answer();
  expect(cells()).toEqual(['1', '2', '3', '4']);
  table.update(null);
  table.update(named('errors'));
  expect(cells()).toEqual([]);
  expect(note()).toBe('loading');
  await held.answer();
  expect(cells()).toEqual(['2']);
  expect(note()).toBe('');
});

test('an answer that comes after that of a later request changes nothing', async () => {
  const { held, table, cells } = made();
  table.update(named('predictions'));
  table.update(named('errors'));
  await held.answer(1);
  await held.answer(0);
  expect(cells()).toEqual(['2']);
});

test('a table that is shown again is not asked for again', async () => {
  const { held, table, cells } = made();
  table.update(named('errors'));
  await held.answer();
  table.update(null);
  table.update(named('errors'));
  expect([cells(), held.asked]).toEqual([['2'], ['errors']]);
});

test('a request that failed says why, and is repeated when the table is shown again', async () => {
  const { held, table, cells, note } = made();
  held.down = true;
  table.update(named('errors'));
  await held.answer();
  expect([cells(), note()]).toEqual([[], 'no answer']);
  held.down = false;
  table.update(null);
  table.update(named('errors'));
  await held.answer();
  expect([cells(), note()]).toEqual([['2'], '']);
});
