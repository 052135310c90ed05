/** Whether a document may be written into, and which notebook it is. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { Widget } from '@lumino/widgets';

import { isWritable, notebookIn, replaceCell } from '../src/document';

const NODE = {} as Node;

/** A widget around NODE, or around something else. */
function widget(context?: object, around: Node | null = NODE): Widget {
  return { node: { contains: (node: Node) => node === around }, context } as unknown as Widget;
}

function app(...widgets: Widget[]): Pick<JupyterFrontEnd, 'shell'> {
  return { shell: { widgets: () => widgets.values() } } as unknown as Pick<JupyterFrontEnd, 'shell'>;
}

test.each([
  ['that may be written', { contentsModel: { writable: true }, model: { readOnly: false } }, true],
  ['whose file may not', { contentsModel: { writable: false }, model: { readOnly: false } }, false],
  ['that is shown for reading', { contentsModel: null, model: { readOnly: true } }, false]
])('a document %s', (_, context, expected) => {
  expect(isWritable(app(widget({}, null), widget(context)), NODE)).toBe(expected);
});

test('an output that stands in no document tells nothing', () => {
  expect(isWritable(app(widget(undefined)), NODE)).toBeNull(); // a new view for an output
  expect(isWritable(app(widget({}, null)), NODE)).toBeNull();
});

test('a notebook is known by its path', () => {
  expect(notebookIn(widget({ path: 'a/b.ipynb' }))).toBe('a/b.ipynb');
  expect(['a/b.py', 7, undefined].map(path => notebookIn(widget({ path })))).toEqual([null, null, null]);
  expect(notebookIn(null)).toBeNull();
});

test('the cell that a node stands in gets another text, where its notebook may be changed', () => {
  const texts: string[] = [];
  const cell = (around: Node | null): object => ({
    node: { contains: (node: Node) => node === around },
    model: { sharedModel: { setSource: (text: string) => texts.push(text) } }
  });
  const content = { widgets: [cell(null), cell(NODE)], activeCellIndex: 0 };
  expect(replaceCell(app(Object.assign(widget({}), { content })), NODE, 'x = 1')).toBe(true);
  expect([texts, content.activeCellIndex]).toEqual([['x = 1'], 1]);
  const reading = Object.assign(widget({ model: { readOnly: true } }), { content });
  expect(replaceCell(app(reading), NODE, 'y = 2')).toBe(false);
  expect(replaceCell(app(widget({})), NODE, 'y = 2')).toBe(false);
  expect(texts).toHaveLength(1);
});
