/** What to do with a training that has ended: load its model, train it longer, run it again, take a checkpoint. */

import type { CheckpointInfo } from '../api/types';
import { loadCode, longer } from '../model/nextsteps';
import { frontOf } from '../model/overview';
import { size } from '../model/text';
import type { Look, Watch } from '../service/watch';
import { copy } from './clipboard';
import { download } from './download';
import { button, changes, h, setAttribute, setChildren, setText, show } from './dom';
import { submittedAs } from './rerun';

const NONE = 'There is no checkpoint (any more).';

export class NextSteps {
  private readonly _code = h('code');
  private readonly _length = h('input', { type: 'number', step: 1, min: 1, required: true });
  private readonly _unit = h('span');
  private readonly _go = h('button', { type: 'submit', class: 'dl-button' }, 'Continue');
  private readonly _more: HTMLElement;
  private readonly _export: HTMLButtonElement;
  private readonly _said = h('span', { class: 'dl-dim', role: 'status' });
  private readonly _error = h('p', { class: 'dl-act-error', role: 'alert' });
  private readonly _rows = h('tbody');
  private readonly _fold: HTMLDetailsElement;
  private readonly _changed = changes();
  readonly root: HTMLElement;

  /** `rerun` is the button that opens the form to run the experiment again. */
  constructor(
    private readonly _watch: Pick<Watch, 'rerun' | 'ask' | 'file' | 'look'>,
    rerun: HTMLButtonElement
  ) {
    const submitted = (event: Event): void => {
      event.preventDefault();
      void this._continue();
    };
    const label = h('label', {}, 'Train it to', this._length, this._unit);
    const exported = (): void => {
      const { number } = this._watch.look;
      const command = `%dl export ${number} --model model-${number}`;
      void this._copy(command, `copied: ${command}`);
    };
    this._export = button('Copy export command', exported);
    setAttribute(this._export, 'title', 'Copy the command that writes the model as a folder of its own');
    this._more = h('form', { class: 'dl-more', 'aria-label': 'Continue', onsubmit: submitted }, label, this._go);
    const copied = (): void => void this._copy(this._code.textContent, 'copied');
    const head = ['trial', 'step', 'epoch', 'size', 'download', 'kept as'].map(name => h('th', { scope: 'col' }, name));
    const table = h('table', { class: 'dl-table', 'aria-label': 'Checkpoints' }, h('thead', {}, h('tr', {}, ...head)));
    table.append(this._rows);
    this._fold = h(
      'details',
      { class: 'dl-fold', ontoggle: () => void this._list() },
      h('summary', {}, 'Checkpoints'),
      h('div', { class: 'dl-wide', tabindex: 0, role: 'group', 'aria-label': 'Checkpoints' }, table)
    );
    this.root = h(
      'section',
      { class: 'dl-next', 'aria-label': 'Take it on', hidden: true },
      h('strong', {}, 'Take it on:'),
      h('span', { class: 'dl-next-code' }, this._code, button('Copy', copied)),
      this._export,
      this._more,
      button('Rerun\u2026', () => rerun.click()),
      this._said,
      this._error,
      this._fold
    );
  }

  update({ overview, heard, connection }: Look): void {
    const there = heard && ['live', 'ended'].includes(connection) && overview !== null;
    const code = there ? loadCode(overview) : '';
    const more = there ? longer(overview) : null;
    show(this.root, code !== '');
    if (!this._changed(code, more?.join())) {
      return;
    }
    setText(this._code, code);
    show(this._more, more !== null);
    show(this._export, !code.endsWith('result()'));
    if (more) {
      const [unit, length] = more;
      this._length.value = String(length);
      setText(this._unit, unit);
      setAttribute(this._length, 'aria-label', `${unit} in all`);
    }
  }

  private async _continue(): Promise<void> {
    const { overview } = this._watch.look;
    if (this._go.disabled || overview === null) {
      return;
    }
    this._go.disabled = true;
    setText(this._error, '');
    setText(this._said, '');
    try {
      const trial = overview.experiment.config.search ? { trial: frontOf(overview)?.index ?? 1 } : {};
      const config = { [this._unit.textContent]: this._length.valueAsNumber };
      submittedAs(this._said, await this._watch.rerun({ checkpoint: 'newest', config, ...trial }));
    } catch (error) {
      setText(this._error, error instanceof Error ? error.message : String(error));
    }
    this._go.disabled = false;
  }

  private async _list(): Promise<void> {
    if (!this._fold.open) {
      return;
    }
    try {
      const { checkpoints } = (await this._watch.ask('/checkpoints')) as { checkpoints: CheckpointInfo[] };
      setChildren(
        this._rows,
        checkpoints.map(each => this._row(each))
      );
      setText(this._error, checkpoints.length ? '' : NONE);
    } catch (error) {
      setText(this._error, error instanceof Error ? error.message : String(error));
    }
  }

  private _row({ id, trial, step, epoch, bytes, kept }: CheckpointInfo): HTMLElement {
    const command = `%dl checkpoint download ${this._watch.look.number}.${trial} --step ${step}`;
    const values = [trial, step, Number(epoch.toFixed(2)), size(bytes)];
    const copied = button('Copy command', () => void this._copy(command, `copied: ${command}`), 'dl-link');
    setAttribute(copied, 'title', command);
    const get = button('Download', () => void this._download(get, trial, id), 'dl-link');
    return h(
      'tr',
      {},
      ...values.map(value => h('td', {}, String(value))),
      h('td', {}, get, copied),
      h('td', {}, kept.join(', '))
    );
  }

  private async _download(get: HTMLButtonElement, trial: number, id: string): Promise<void> {
    get.disabled = true;
    setText(this._error, '');
    try {
      const file = await this._watch.file(`/checkpoints/${trial}/${id}/files.tar`);
      download(`checkpoint-${this._watch.look.number}.${trial}-${id}.tar`, file);
    } catch (error) {
      setText(this._error, error instanceof Error ? error.message : String(error));
    }
    get.disabled = false;
  }

  private async _copy(text: string, done: string): Promise<void> {
    setText(this._said, (await copy(text)) ? done : text);
  }
}
