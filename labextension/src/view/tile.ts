/** Thumbnail of an artifact: its picture, or the kind of its file, with the name below; of a series, with a slider. */

import type { Artifact } from '../api/types';
import { isPicture, isTable, kindText, PICTURE_BYTES, type Series, sizeText } from '../model/artifacts';
import { whenText } from '../model/dates';
import type { Watch } from '../service/watch';
import { h, setAttribute, setText, show } from './dom';

export class Tile {
  readonly root: HTMLElement;
  private readonly _picture = h('img', { alt: '', hidden: true });
  private readonly _kind = h('span', { class: 'dl-tile-kind', 'aria-hidden': 'true' });
  private readonly _name = h('span', { class: 'dl-tile-name' });
  private readonly _about = h('span', { class: 'dl-dim' });
  private readonly _button: HTMLButtonElement;
  private readonly _slider = h('input', { type: 'range', min: 0, step: 1, class: 'dl-tile-slider' });
  private _series: Series | null = null;
  private _place: number | null = null; // selected item of the series; null: always the newest
  private _artifact: Artifact | null = null;
  private _shown = ''; // version of the picture
  private _url: string | null = null;
  private _disposed = false;

  /** `changed` is called when the picture has been loaded or replaced. */
  constructor(
    private readonly _watch: Pick<Watch, 'artifact'>,
    pressed: (tile: Tile) => void,
    private readonly _changed: () => void
  ) {
    const frame = h('span', { class: 'dl-tile-frame' }, this._picture, this._kind);
    this._button = h(
      'button',
      { type: 'button', class: 'dl-tile', onclick: () => pressed(this) },
      frame,
      this._name,
      this._about
    );
    this._slider.addEventListener('input', () => this._slide());
    this.root = h('li', {}, this._button, this._slider);
  }

  get artifact(): Artifact {
    if (this._artifact === null) {
      throw new Error('update() comes first');
    }
    return this._artifact;
  }

  /** URL of the picture; null before it is loaded, and for files that are no pictures. */
  get url(): string | null {
    return this._url;
  }

  update(series: Series): void {
    this._series = series;
    const last = series.items.length - 1;
    show(this._slider, last > 0);
    setAttribute(this._slider, 'max', String(last));
    setAttribute(this._slider, 'aria-label', `Steps of ${series.name}`);
    if (this._place === null) {
      this._slider.value = String(last);
    }
    this._update(series.items[Math.min(this._place ?? last, last)] ?? this.artifact);
  }

  private _slide(): void {
    const place = Number(this._slider.value);
    const items = this._series?.items ?? [];
    const item = items[place];
    this._place = place === items.length - 1 ? null : place;
    if (item) {
      this._update(item);
      this._changed();
    }
  }

  private _update(artifact: Artifact): void {
    this._artifact = artifact;
    setAttribute(this._slider, 'aria-valuetext', `step ${artifact.step}`);
    const picture = isPicture(artifact);
    setText(this._kind, kindText(artifact));
    setText(this._name, artifact.name);
    const step =
      (this._series?.items.length ?? 0) > 1 ? `step ${artifact.step}` : whenText(artifact.at, Date.now() / 1000);
    setText(this._about, `${sizeText(artifact)} \u00b7 ${step}`);
    setAttribute(
      this._button,
      'title',
      `${picture || isTable(artifact) ? 'Show' : 'Save'} ${artifact.file}, saved at step ${artifact.step}`
    );
    if ((picture || isTable(artifact)) && !this._button.hasAttribute('aria-expanded')) {
      this.expand(false);
    }
    const version = `${artifact.digest} ${artifact.attempt} ${artifact.at}`;
    if (picture && artifact.size <= PICTURE_BYTES && version !== this._shown) {
      this._shown = version;
      void this._load(artifact, version);
    }
  }

  /** Set whether it is shown enlarged. */
  expand(large: boolean): void {
    setAttribute(this._button, 'aria-expanded', String(large));
  }

  dispose(): void {
    this._disposed = true;
    this._forget();
  }

  private async _load(artifact: Artifact, version: string): Promise<void> {
    let bytes: Uint8Array<ArrayBuffer>;
    try {
      bytes = await this._watch.artifact(artifact.trial, artifact.name);
    } catch {
      return; // the file's kind is shown instead; clicking it shows the error
    }
    if (this._disposed || version !== this._shown) {
      return;
    }
    this._forget();
    this._url = URL.createObjectURL(new Blob([bytes], { type: artifact.media }));
    setAttribute(this._picture, 'src', this._url);
    show(this._picture, true);
    show(this._kind, false);
    this._changed();
  }

  private _forget(): void {
    if (this._url !== null) {
      URL.revokeObjectURL(this._url);
      this._url = null;
    }
  }
}
