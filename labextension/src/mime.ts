/**
 * Renderer that draws an experiment in a notebook's output, updates it, and saves the displayed state in the notebook.
 */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';

import type { Live, RendererOptions } from './live';
import { MIME_TYPE } from './model/saved';
import { Part } from './part';
import { h } from './view/dom';
import { PartNotice } from './view/partnotice';

const RANK = 40; // text/html has rank 50
const CANNOT = 'This version of Daylight cannot show what stands here.';

/** View of an experiment, and what puts it back after a reload. */
export const VIEW = new Part(() => import('./live'));

export function rendererFactory(options: RendererOptions): IRenderMime.IRendererFactory {
  return {
    safe: true, // text from a notebook is always inserted as text
    mimeTypes: [MIME_TYPE],
    defaultRank: RANK,
    createRenderer: () => new ExperimentRenderer(options)
  };
}

export class ExperimentRenderer extends Widget implements IRenderMime.IRenderer {
  private readonly _notice = new PartNotice(VIEW);
  private readonly _unlisten: () => void;
  private _model: IRenderMime.IMimeModel | null = null;
  private _live: Live | null = null;

  constructor(private readonly _options: RendererOptions) {
    super();
    this.addClass('dl-output');
    this._unlisten = VIEW.listen(() => this._render());
  }

  /** Draw a model, once the code is loaded; if the experiment is the same as before, update the existing view. */
  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._model = model;
    const loaded = VIEW.load();
    this._render();
    return loaded.then(() => this._appeared()); // by then the node is in its cell
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._unlisten();
      this._clear();
      this._model = null;
      super.dispose();
    }
  }

  protected override onAfterAttach(): void {
    this._live?.attached();
    this._appeared();
  }

  private _appeared(): void {
    if (this._live) {
      this._options.appeared(this.node, this._live.saved);
    }
  }

  private _render(): void {
    if (this._model === null) {
      return;
    }
    if (VIEW.code) {
      this._draw(VIEW.code, this._model.data);
    } else {
      this._wait(this._model.data);
    }
  }

  private _draw(code: typeof import('./live'), data: IRenderMime.IMimeModel['data']): void {
    const saved = code.savedIn(data[MIME_TYPE]);
    if (saved && this._live?.shows(saved)) {
      this._live.adopt(saved);
      return;
    }
    this._clear();
    try {
      this._live = saved && new code.Live(this.node, saved, this._options, fresh => this._write(fresh));
    } catch (error) {
      console.error('Daylight: an output cannot be shown', error);
    }
    if (this._live === null) {
      this.node.replaceChildren(h('p', { class: 'dl-excuse' }, CANNOT), ...plainIn(data));
    } else if (this.isAttached) {
      this._live.attached();
    }
  }

  /** Show the output's plain text while the code of the view is not there. */
  private _wait(data: IRenderMime.IMimeModel['data']): void {
    this._notice.update();
    this.node.replaceChildren(this._notice.root, ...(this._notice.shown ? plainIn(data) : []));
  }

  private _clear(): void {
    this._live?.dispose();
    this._live = null;
    this.node.replaceChildren();
  }

  /** Replace these MIME types of the output's data; JupyterLab then makes this widget render it again. */
  private _write(fresh: IRenderMime.IMimeModel['data']): void {
    this._model?.setData({ data: { ...this._model.data, ...fresh } });
  }
}

function plainIn(data: IRenderMime.IMimeModel['data']): HTMLElement[] {
  const text = data['text/plain'];
  return typeof text === 'string' && text ? [h('pre', {}, text)] : [];
}
