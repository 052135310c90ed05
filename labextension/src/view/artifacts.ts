/** Artifacts of a trial: pictures and tables, one of them enlarged, and other files as downloads. */

import type { Artifact } from '../api/types';
import {
  isPicture,
  isTable,
  MOST_BYTES,
  MOST_TILES,
  savedText,
  type Series,
  seriesOf,
  sizeText,
  tooLarge
} from '../model/artifacts';
import { messageOf } from '../service/source';
import type { Look, Watch } from '../service/watch';
import { ArtifactTable } from './artifacttable';
import { button, changes, h, setAttribute, setChildren, setText, show } from './dom';
import { download } from './download';
import { Sight } from './frame';
import { Polling } from './search/polling';
import { Tile } from './tile';

const EVERY_MS = 1500;

export type ArtifactSource = Pick<Watch, 'ask' | 'artifact'>;

export class Artifacts {
  readonly root: HTMLDetailsElement;
  private readonly _whose = h('p', { class: 'dl-dim' });
  private readonly _list = h('ul', { class: 'dl-tiles', 'aria-label': 'Artifacts' });
  private readonly _picture = h('img');
  private readonly _table: ArtifactTable;
  private readonly _name = h('figcaption');
  private readonly _large: HTMLElement;
  private readonly _problem = h('p', { class: 'dl-dim', role: 'status' });
  private readonly _polling: Polling<unknown>;
  private readonly _sight: Sight;
  private readonly _tiles = new Map<string, Tile>();
  private readonly _changed = changes();
  private _known: readonly Artifact[] = [];
  private _picked: Tile | null = null;
  private _look: Look | null = null;
  private _chosen: number | null = null;
  private _seq = 0; // number of the newest artifact that was requested

  constructor(private readonly _watch: ArtifactSource) {
    const save = button('Save', () => this._picked && void this._save(this._picked.artifact));
    const close = button('Close', () => this._pick(null));
    this._table = new ArtifactTable(_watch);
    const shown = [this._picture, this._table.root, this._name, save, close];
    this._large = h('figure', { class: 'dl-large', hidden: true }, ...shown);
    this.root = h(
      'details',
      { class: 'dl-fold dl-artifacts', open: true, hidden: true, ontoggle: () => this._again(true) },
      h('summary', {}, 'Artifacts'),
      this._whose,
      this._list,
      this._large,
      this._problem
    );
    this._polling = new Polling(
      () => this._watch.ask('/artifacts'),
      answer => this._know((answer as { artifacts: Artifact[] }).artifacts),
      error => this._fail(error),
      EVERY_MS
    );
    this._sight = new Sight(this.root, () => this._again(true));
  }

  /** Draw the artifacts; `chosen` is the selected trial of a search. */
  update(look: Look, chosen: number | null = null): void {
    this._look = look;
    this._chosen = chosen;
    show(this.root, (look.overview?.artifacts_seq ?? 0) > 0 && look.connection !== 'foreign');
    this._again();
    this._draw();
  }

  dispose(): void {
    this._polling.dispose();
    this._sight.dispose();
    this._tiles.forEach(tile => tile.dispose());
  }

  /** Request the list if artifacts were stored since the last request, and it is visible; with `now`, at once. */
  private _again(now = false): void {
    const seq = this._look?.overview?.artifacts_seq ?? 0;
    const heard = this._look !== null && ['live', 'ended'].includes(this._look.connection);
    if (heard && seq > this._seq && this.root.open && this._sight.visible) {
      this._seq = seq;
      this._polling.want(now);
    }
  }

  private _know(artifacts: readonly Artifact[]): void {
    this._known = artifacts;
    setText(this._problem, '');
    this._draw();
  }

  private _fail(error: unknown): void {
    this._seq = 0; // the next change, or becoming visible, requests again
    setText(this._problem, messageOf(error));
  }

  private _draw(): void {
    const trial = this._chosen;
    if (!this._changed(this._known, trial)) {
      return;
    }
    const all = this._known.filter(each => trial === null || each.trial === trial);
    const series = seriesOf(all);
    const tiles = series.slice(0, MOST_TILES).map(each => this._tile(each));
    for (const [key, tile] of this._tiles) {
      if (!tiles.includes(tile)) {
        this._tiles.delete(key);
        tile.dispose();
      }
    }
    setChildren(
      this._list,
      tiles.map(tile => tile.root)
    );
    setText(this._whose, savedText(this._look?.number ?? 0, series, all, this._known, trial));
    if (this._picked && !tiles.includes(this._picked)) {
      this._pick(null);
    }
  }

  private _tile(series: Series): Tile {
    const tile =
      this._tiles.get(series.key) ??
      new Tile(
        this._watch,
        one => this._pressed(one),
        () => this._enlarge()
      );
    this._tiles.set(series.key, tile);
    tile.update(series);
    return tile;
  }

  private _pressed(tile: Tile): void {
    if (isPicture(tile.artifact) || isTable(tile.artifact)) {
      this._pick(tile === this._picked ? null : tile);
    } else {
      void this._save(tile.artifact);
    }
  }

  private _pick(tile: Tile | null): void {
    this._picked?.expand(false);
    this._picked = tile;
    tile?.expand(true);
    this._enlarge();
  }

  private _enlarge(): void {
    const tile = this._picked;
    const table = tile !== null && isTable(tile.artifact) ? tile.artifact : null;
    const url = table ? null : (tile?.url ?? null);
    show(this._large, table !== null || url !== null);
    show(this._picture, url !== null);
    this._table.update(table);
    if (url) {
      setAttribute(this._picture, 'src', url);
      setAttribute(this._picture, 'alt', tile?.artifact.name ?? '');
    }
    if (tile) {
      setText(this._name, `${tile.artifact.name} \u00b7 step ${tile.artifact.step} \u00b7 ${sizeText(tile.artifact)}`);
    }
  }

  private async _save(artifact: Artifact): Promise<void> {
    if (artifact.size > MOST_BYTES) {
      setText(this._problem, tooLarge(this._look?.number ?? 0, artifact));
      return;
    }
    try {
      download(artifact.file, await this._watch.artifact(artifact.trial, artifact.name));
      setText(this._problem, '');
    } catch (error) {
      setText(this._problem, messageOf(error));
    }
  }
}
