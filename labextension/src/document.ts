/**
 * Access to the notebook that contains a DOM node, by minimal interfaces, so that the package for notebooks is not
 * required.
 */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { Widget } from '@lumino/widgets';

/** Fields of a document widget. */
interface Context {
  path?: unknown;
  contentsModel?: { writable?: unknown } | null;
  model?: { readOnly?: unknown };
}

/** Fields of a notebook widget. */
interface Notebook {
  widgets?: readonly NotebookCell[];
  activeCellIndex?: number;
}

interface NotebookCell {
  node: Node;
  model?: { sharedModel?: { setSource?: (text: string) => void } };
}

/** Return the path of a notebook's file; null if the widget is not a notebook. */
export function notebookIn(widget: Widget | null): string | null {
  const path = contextOf(widget)?.path;
  return typeof path === 'string' && path.endsWith('.ipynb') ? path : null;
}

/**
 * Return whether the document that contains a node can be changed and saved; false if it is read-only.
 *
 * Returns null if the node is in no document, as for an output that was scrolled out of sight.
 */
export function isWritable(app: Pick<JupyterFrontEnd, 'shell'>, node: Node): boolean | null {
  const around = [...app.shell.widgets('main')].find(widget => widget.node.contains(node));
  const context = contextOf(around ?? null);
  return context ? context.contentsModel?.writable !== false && context.model?.readOnly !== true : null;
}

/**
 * Replace the text of the notebook cell that contains a node, and select the cell; return whether that was possible.
 */
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
