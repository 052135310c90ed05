/** The document in which something stands, by the little that we need of it: no dependency on notebooks for that. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { Widget } from '@lumino/widgets';

/** What a document's widget has, where it is one. */
interface Context {
  path?: unknown;
  contentsModel?: { writable?: unknown } | null;
  model?: { readOnly?: unknown };
}

/** What a notebook's widget has. */
interface Notebook {
  widgets?: readonly NotebookCell[];
  activeCellIndex?: number;
}

interface NotebookCell {
  node: Node;
  model?: { sharedModel?: { setSource?: (text: string) => void } };
}

/** The path of a notebook, if a widget is one. */
export function notebookIn(widget: Widget | null): string | null {
  const path = contextOf(widget)?.path;
  return typeof path === 'string' && path.endsWith('.ipynb') ? path : null;
}

/**
 * Whether the document that a node stands in may be changed: one that cannot be saved is not to be called changed.
 * Null where the node is in no document: an output that was scrolled out of sight is in none.
 */
export function isWritable(app: Pick<JupyterFrontEnd, 'shell'>, node: Node): boolean | null {
  const around = [...app.shell.widgets('main')].find(widget => widget.node.contains(node));
  const context = contextOf(around ?? null);
  return context ? context.contentsModel?.writable !== false && context.model?.readOnly !== true : null;
}

/** Give the notebook's cell that a node stands in another text, and select it; whether it could be done. */
export function replaceCell(app: Pick<JupyterFrontEnd, 'shell'>, node: Node, text: string): boolean {
  const around = [...app.shell.widgets('main')].find(widget => widget.node.contains(node));
  const notebook = (around as { content?: Notebook } | undefined)?.content;
  const index = notebook?.widgets?.findIndex(cell => cell.node.contains(node)) ?? -1;
  const shared = notebook?.widgets?.[index]?.model?.sharedModel;
  if (!notebook || !shared?.setSource || isWritable(app, node) === false) {
    return false;
  }
  notebook.activeCellIndex = index;
  shared.setSource(text);
  return true;
}

function contextOf(widget: Widget | null): Context | undefined {
  return (widget as { context?: Context } | null)?.context;
}
