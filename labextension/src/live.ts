/** View of one experiment in one output: connected, and saved in the notebook. Loaded with the first output. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import { ended, sameExperiment, stateOf } from './model/overview';
import type { Saved } from './model/saved';
import { MIME_TYPE } from './model/saved';
import type { LiveSettings } from './panel/settings';
import { savedIn } from './saved';
import type { LabSource } from './service/request';
import { Watch } from './service/watch';
import { ExperimentView } from './view/view';
import { WriteBack } from './writeback';

export { savedIn } from './saved';
export { UnsavedViews } from './unsaved';

/**
 * Options of the renderer: `appeared` is called when a node in a cell shows an experiment, and `news` when an experiment
 * begins, ends or changes its state.
 */
export interface RendererOptions {
  source: LabSource;
  settings: LiveSettings;
  writable: (node: Node) => boolean | null; // whether the node's document may be changed; null if it is in none
  appeared: (node: Node, saved: Saved) => void;
  news: () => void;
}

export class Live {
  private readonly _watch: Watch;
  private readonly _view: ExperimentView;
  private readonly _writing: WriteBack;
  private _disposed = false;
  private _writable = false; // as far as is known

  constructor(
    node: HTMLElement,
    private _saved: Saved,
    private readonly _options: RendererOptions,
    private readonly _write: (fresh: IRenderMime.IMimeModel['data']) => void
  ) {
    this._watch = new Watch(_options.source, _saved.number, _saved);
    this._view = new ExperimentView(node, this._watch, _options.settings.current.view);
    const page = {
      enabled: () => _options.settings.current.writeBack && this._isWritable(node),
      visible: () => document.visibilityState === 'visible',
      now: () => performance.now() / 1000 // a monotonic clock
    };
    this._writing = new WriteBack(this._watch, _saved.overview, page, () => this._writeBack());
    this._spread();
    _options.settings.changed.connect(this._settingsChanged);
    document.addEventListener('visibilitychange', this._visibilityChanged);
    this._watch.start();
  }

  /** State in the notebook's output. */
  get saved(): Saved {
    return this._saved;
  }

  shows(saved: Saved): boolean {
    return sameExperiment(saved.overview, this._saved.overview);
  }

  /** Update the view after a change of the output's data. */
  adopt(saved: Saved): void {
    this._saved = saved;
    this._watch.adopt(saved);
    this._writing.keep(saved.overview);
  }

  /** Start when the widget has been attached to a document. */
  attached(): void {
    this._writing.consider();
  }

  dispose(): void {
    this._disposed = true;
    this._options.settings.changed.disconnect(this._settingsChanged);
    document.removeEventListener('visibilitychange', this._visibilityChanged);
    this._writing.dispose();
    this._view.dispose();
    this._watch.dispose();
  }

  private async _writeBack(): Promise<void> {
    const fresh = await this._options.source.bundle(this._saved.number, this._saved.captured);
    const saved = savedIn(fresh[MIME_TYPE]);
    if (this._disposed || !saved || !this.shows(saved) || saved.overview.seq < this._saved.overview.seq) {
      return;
    }
    this._write(fresh);
  }

  private _isWritable(node: Node): boolean {
    this._writable = this._options.writable(node) ?? this._writable;
    return this._writable;
  }

  /** Notify the other parts of the page of a change of this experiment. */
  private _spread(): void {
    let state = ended(this._saved.overview) ? stateOf(this._saved.overview) : '';
    this._watch.subscribe(({ overview }) => {
      const newer = overview ? stateOf(overview) : state;
      if (newer !== state) {
        state = newer;
        this._options.news();
      }
    });
  }

  private readonly _settingsChanged = (): void => {
    this._view.settings = this._options.settings.current.view;
    this._writing.consider();
  };

  private readonly _visibilityChanged = (): void => this._writing.consider();
}
