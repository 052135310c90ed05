/** Table of an artifact with comma-separated values, fetched when it is shown. */

import type { Artifact } from '../api/types';
import { csvTable, type CsvTable } from '../model/csv';
import { messageOf } from '../service/source';
import type { Watch } from '../service/watch';
import { cells, h, heads, setChildren, setText, show, wide } from './dom';

const LOADING = 'loading';

export class ArtifactTable {
  private readonly _table = h('table', { class: 'dl-table' });
  private readonly _left = h('p', { class: 'dl-dim' });
  private _shown = ''; // version of the file that is shown or was requested
  private readonly _box = wide('Table', this._table);
  readonly root = h('div', { class: 'dl-artifact-table', hidden: true }, this._box, this._left);

  constructor(private readonly _watch: Pick<Watch, 'artifact'>) {}

  /** Show an artifact; null for none. */
  update(artifact: Artifact | null): void {
    show(this.root, artifact !== null);
    const version = artifact ? `${artifact.trial} ${artifact.name} ${artifact.digest}` : '';
    if (artifact && version !== this._shown) {
      this._shown = version;
      this._box.style.minHeight = `${this._box.offsetHeight}px`; // what is below stays where it is meanwhile
      this._draw(null, LOADING); // never another file's rows below this one's name
      void this._load(artifact, version);
    }
  }

  private async _load(artifact: Artifact, version: string): Promise<void> {
    let found: CsvTable | null = null;
    let left: string;
    try {
      const bytes = await this._watch.artifact(artifact.trial, artifact.name);
      found = csvTable(new TextDecoder().decode(bytes), !artifact.media.endsWith('csv'));
      left = found.left;
    } catch (error) {
      left = messageOf(error);
    }
    if (version === this._shown) {
      this._shown = found ? version : ''; // a failed request is repeated when the table is shown again
      this._box.style.minHeight = '';
      this._draw(found, left);
    }
  }

  private _draw(found: CsvTable | null, left: string): void {
    setChildren(this._table, found ? [heads(found.head), h('tbody', {}, ...found.rows.map(cells))] : []);
    setText(this._left, left);
    show(this._left, left !== '');
  }
}
