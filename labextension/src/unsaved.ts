/** Views that a notebook's file does not have yet: they are put back after the page was reloaded. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { PartialJSONObject } from '@lumino/coreutils';
import type { Widget } from '@lumino/widgets';

import { cellAround, notebookOf } from './document';
import type { NotebookContext } from './document';
import { MIME_TYPE } from './model/saved';
import type { Saved } from './model/saved';

const MOST = 20; // cells that are remembered, the newest ones

/** View of one experiment in a cell of a notebook, of which the file was last changed at `modified`. */
interface Unsaved {
  readonly path: string;
  readonly modified: string;
  readonly cell: string;
  readonly number: number;
  readonly created: number; // in another home, another experiment may have its number
  readonly captured: readonly string[];
}

type Storage = Pick<globalThis.Storage, 'getItem' | 'setItem'>;
type Bundle = (number: number, captured: readonly string[]) => Promise<PartialJSONObject>;

export class UnsavedViews {
  /** `key` names the views of one Jupyter server, and `bundle` returns the output of an experiment. */
  constructor(
    private readonly _app: Pick<JupyterFrontEnd, 'shell'>,
    private readonly _bundle: Bundle,
    private readonly _storage: () => Storage,
    private readonly _key: string
  ) {}

  /** Remember the view that a node shows, unless its notebook has no changes that a reload would lose. */
  note(node: Node, { number, overview, captured }: Saved): void {
    const { context, cell } = cellAround(this._app, node) ?? {};
    const place = placeOf(context);
    const id = cell?.id;
    if (place && id && context?.model?.dirty) {
      const unsaved = { ...place, cell: id, number, created: overview.experiment.created_at, captured };
      // Once the file has changed, it has the views that were shown before.
      const others = this._read().filter(each => each.path !== place.path || (isOf(each, place) && each.cell !== id));
      this._write([...others, unsaved].slice(-MOST));
    }
  }

  /** Put the remembered views into those cells of a notebook that show nothing, if its file is still the same. */
  async restore(widget: Widget | null): Promise<void> {
    const context = notebookOf(widget);
    await context?.ready;
    const place = placeOf(context);
    if (context && place) {
      const mine = this._read().filter(each => isOf(each, place));
      await Promise.all(mine.map(each => this._put(context, each)));
    }
  }

  private async _put(context: NotebookContext, { cell, number, created, captured }: Unsaved): Promise<void> {
    const outputs = [...(context.model?.cells ?? [])].find(each => each.id === cell)?.outputs;
    try {
      const data = outputs?.length === 0 ? await this._bundle(number, captured) : {};
      const saved = data[MIME_TYPE] as Saved | undefined;
      // Meanwhile the cell may have been run.
      if (outputs?.length === 0 && saved?.overview.experiment.created_at === created) {
        outputs.add({ output_type: 'display_data', data, metadata: {} });
      }
    } catch (error) {
      console.warn(`Daylight: #${number} cannot be shown again`, error);
    }
  }

  private _read(): readonly Unsaved[] {
    try {
      const told: unknown = JSON.parse(this._storage().getItem(this._key) ?? '');
      return Array.isArray(told) ? (told as Unsaved[]) : [];
    } catch {
      return [];
    }
  }

  private _write(unsaved: readonly Unsaved[]): void {
    try {
      this._storage().setItem(this._key, JSON.stringify(unsaved));
    } catch {
      // Where the browser stores nothing, a view appears again once its notebook was saved.
    }
  }
}

type Place = Pick<Unsaved, 'path' | 'modified'>;

function placeOf(context?: NotebookContext): Place | null {
  const [path, modified] = [context?.path, context?.contentsModel?.last_modified];
  return typeof path === 'string' && typeof modified === 'string' ? { path, modified } : null;
}

function isOf(unsaved: Unsaved, { path, modified }: Place): boolean {
  return unsaved.path === path && unsaved.modified === modified;
}
