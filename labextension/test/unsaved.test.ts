/** Views that a reload would lose. */

import type { Widget } from '@lumino/widgets';

import { MIME_TYPE, type Saved } from '../src/model/saved';
import { UnsavedViews } from '../src/unsaved';
import { overview } from './fakes';

const NODE = {} as Node;
const SHOWN = overview();
const NUMBER = SHOWN.experiment.number;
const SAVED: Saved = {
  version: 1,
  number: NUMBER,
  at: 0,
  captured: ['2 lines of cell [1]'],
  names: [],
  overview: SHOWN,
  curves: null,
  search: null
};

interface Opened {
  widget: Widget;
  outputs: object[]; // of its only cell
}

/** Open a notebook whose file was last changed at `modified`. */
function open(modified: string, { outputs = [] as object[], dirty = true, path = 'n.ipynb' } = {}): Opened {
  const model = { id: 'a', outputs: Object.assign(outputs, { add: (output: object) => outputs.push(output) }) };
  const widget = {
    node: { contains: () => true },
    content: { widgets: [{ node: { contains: (node: Node) => node === NODE }, model }] },
    context: {
      path,
      ready: Promise.resolve(),
      contentsModel: { last_modified: modified },
      model: { dirty, cells: [model] }
    }
  };
  return { widget: widget as unknown as Widget, outputs };
}

/** Browser whose pages show one notebook each; the service has `known`. */
class Browser {
  private readonly _stored = new Map<string, string>();
  readonly asked: unknown[] = [];
  known = SHOWN;

  page(...opened: Opened[]): UnsavedViews {
    const storage = {
      getItem: (key: string) => this._stored.get(key) ?? null,
      setItem: (key: string, text: string) => void this._stored.set(key, text)
    };
    const shell = { widgets: () => opened.map(({ widget }) => widget).values() };
    const bundle = (...asked: unknown[]): Promise<never> => {
      this.asked.push(asked);
      return Promise.resolve({ [MIME_TYPE]: { ...SAVED, overview: this.known } } as never);
    };
    return new UnsavedViews({ shell } as never, bundle, () => storage, 'daylight:unsaved:/user/dave/');
  }

  /** Show an experiment in a notebook, and open the notebook again; return the number of outputs of its cell. */
  async reload(first: Opened, then: Opened): Promise<number> {
    this.page(first).note(NODE, SAVED);
    await this.page(then).restore(then.widget);
    return then.outputs.length;
  }
}

test('a view that was not saved stands in its cell again, with what was said of the submission', async () => {
  const browser = new Browser();
  const again = open('10:00');
  expect(await browser.reload(open('10:00'), again)).toBe(1);
  expect(again.outputs[0]).toMatchObject({ output_type: 'display_data', data: { [MIME_TYPE]: { number: NUMBER } } });
  expect(browser.asked).toEqual([[NUMBER, SAVED.captured]]);
});

test('one view appears, however often the notebook comes to the front', async () => {
  const browser = new Browser();
  const [first, again] = [open('10:00'), open('10:00')];
  await browser.reload(first, again);
  const page = browser.page(again);
  await Promise.all([page.restore(again.widget), page.restore(again.widget)]);
  expect(again.outputs).toHaveLength(1);
});

test.each<[string, Opened, Opened]>([
  ['its file has it, or its user has cleared it', open('10:00'), open('10:05')],
  ['nothing of the notebook was unsaved', open('10:00', { dirty: false }), open('10:00')],
  ['the cell shows something', open('10:00'), open('10:00', { outputs: [{ output_type: 'stream' }] })],
  ['it was in another notebook', open('10:00'), open('10:00', { path: 'other.ipynb' })]
])('nothing is put back where %s', async (_, first, then) => {
  const before = then.outputs.length;
  expect(await new Browser().reload(first, then)).toBe(before);
});

test('another experiment of the same number is not shown in its place', async () => {
  const browser = new Browser();
  browser.known = { ...SHOWN, experiment: { ...SHOWN.experiment, created_at: SHOWN.experiment.created_at + 1 } };
  expect(await browser.reload(open('10:00'), open('10:00'))).toBe(0);
});
