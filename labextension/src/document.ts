/**
 * Access to the notebook that contains a DOM node, by minimal interfaces, so that the package for notebooks is not
 * required.
 */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { Widget } from '@lumino/widgets';

/** Fields of a notebook's context: its file and its model. */
export interface NotebookContext {
  path?: unknown;
  ready?: Promise<void>;
  contentsModel?: { writable?: unknown; last_modified?: unknown } | null;
  model?: { readOnly?: unknown; dirty?: boolean; cells?: Iterable<CellModel> };
}

interface CellModel {
  id?: string;
  sharedModel?: { setSource?: (text: string) => void };
  outputs?: { readonly length: number; add: (output: object) => unknown }; // of a code cell
}

/** Fields of a notebook widget. */
interface Notebook {
  widgets?: readonly NotebookCell[];
  activeCellIndex?: number;
}

interface NotebookCell {
  node: Node;
  model?: CellModel;
}

/** Return the path of a notebook's file; null if the widget is not a notebook. */
export function notebookIn(widget: Widget | null): string | null {
  const path = contextOf(widget)?.path;
  return typeof path === 'string' && path.endsWith('.ipynb') ? path : null;
}

/** Return the context of a notebook; undefined if the widget is not a notebook. */
export function notebookOf(widget: Widget | null): NotebookContext | undefined {
  return notebookIn(widget) === null ? undefined : contextOf(widget);
}

/** Cell of a notebook, and its place there. */
interface Place {
  context: NotebookContext | undefined;
  notebook: Notebook;
  index: number;
  cell: CellModel | undefined;
}

/** Return the cell that contains a node, which may be out of sight; null if it is in no notebook. */
export function cellAround(app: Pick<JupyterFrontEnd, 'shell'>, node: Node): Place | null {
  for (const widget of app.shell.widgets('main')) {
    const notebook = (widget as { content?: Notebook }).content;
    const index = notebook?.widgets?.findIndex(cell => cell.node.contains(node)) ?? -1;
    if (notebook && index >= 0) {
      return { context: contextOf(widget), notebook, index, cell: notebook.widgets?.[index]?.model };
    }
  }
  return null;
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
  const place = cellAround(app, node);
  const shared = place?.cell?.sharedModel;
  if (!place || !shared?.setSource || isWritable(app, node) === false) {
    return false;
  }
  place.notebook.activeCellIndex = place.index;
  shared.setSource(text);
  return true;
}

function contextOf(widget: Widget | null): NotebookContext | undefined {
  return (widget as { context?: NotebookContext } | null)?.context;
}
