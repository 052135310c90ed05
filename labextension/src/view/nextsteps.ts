/** What to do with a training that has ended: load or register its model, train it longer, run it again. */

import type { CheckpointInfo, Registered } from '../api/types';
import { bestCheckpoint, loadCode, longer } from '../model/nextsteps';
import { frontOf } from '../model/overview';
import { size } from '../model/text';
import type { Look, Watch } from '../service/watch';
import { copy } from './clipboard';
import { download } from './download';
import { button, cells, changes, h, heads, setAttribute, setChildren, setText, show, wide } from './dom';
import { Attempt, form, submit } from './form';
import { submittedAs } from './rerun';

const NONE = 'There is no checkpoint (any more).';

export class NextSteps {
  private readonly _code = h('code');
  private readonly _length = h('input', { type: 'number', step: 1, min: 1, required: true });
  private readonly _unit = h('span');
  private readonly _go = submit('Continue');
  private readonly _more = form(
    'Continue',
    () => void this._continue(),
    h('label', {}, 'Train it to', this._length, this._unit),
    this._go
  );
  private readonly _name = h('input', { type: 'text', required: true, placeholder: 'memes', spellcheck: 'false' });
  private readonly _register = submit('Register');
  private readonly _naming = form(
    'Register',
    () => void this._registered(),
    h('label', {}, 'Best checkpoint as model', this._name),
    this._register
  );
  private readonly _export: HTMLButtonElement;
  private readonly _as = button('Register as\u2026', () => {
    show(this._naming, this._naming.hidden);
    this._name.focus();
  });
  private readonly _acting = new Attempt();
  private readonly _rows = h('tbody');
  private readonly _fold: HTMLDetailsElement;
  private readonly _changed = changes();
  readonly root: HTMLElement;

  /** `rerun` is the button that opens the form to run the experiment again. */
  constructor(
    private readonly _watch: Pick<Watch, 'rerun' | 'post' | 'ask' | 'file' | 'look'>,
    rerun: HTMLButtonElement
  ) {
    const exported = (): void => {
      const { number } = this._watch.look;
      this._copy(`%dl export ${number} --model model-${number}`);
    };
    this._export = button('Copy export command', exported);
    setAttribute(this._export, 'title', 'Copy the command that exports the model');
    show(this._naming, false);
    const head = heads(['trial', 'step', 'epoch', 'size', 'download', 'kept as']);
    this._fold = h(
      'details',
      { class: 'dl-fold', ontoggle: () => void (this._fold.open && this._list()) },
      h('summary', {}, 'Checkpoints'),
      wide('Checkpoints', h('table', { class: 'dl-table', 'aria-label': 'Checkpoints' }, head, this._rows))
    );
    this.root = h(
      'section',
      { class: 'dl-next', 'aria-label': 'Take it on', hidden: true },
      h('strong', {}, 'Take it on:'),
      h(
        'span',
        { class: 'dl-next-code' },
        this._code,
        button('Copy', () => this._copy(this._code.textContent, ''))
      ),
      this._as,
      this._naming,
      this._export,
      this._more,
      button('Rerun\u2026', () => rerun.click()),
      this._acting.said,
      this._acting.error,
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
    [this._export, this._as].forEach(each => show(each, code.endsWith('load()')));
    if (more) {
      const [unit, length] = more;
      this._length.value = String(length);
      setText(this._unit, unit);
      setAttribute(this._length, 'aria-label', `${unit} in all`);
    }
  }

  private _continue(): Promise<boolean> {
    return this._acting.run(async () => {
      const { overview } = this._watch.look;
      const trial = overview?.experiment.config.search ? { trial: frontOf(overview)?.index ?? 1 } : {};
      const config = { [this._unit.textContent]: this._length.valueAsNumber };
      submittedAs(this._acting.said, await this._watch.rerun({ checkpoint: 'newest', config, ...trial }));
    }, this._go);
  }

  /** Make the best checkpoint the next version of a model. */
  private _registered(): Promise<boolean> {
    return this._acting.run(async () => {
      const { number, overview } = this._watch.look;
      const best = overview && bestCheckpoint(await this._checkpoints(), overview.experiment.config.metric);
      if (!best) {
        throw new Error(`No checkpoint has the metric: %dl register ${number} --latest takes the newest.`);
      }
      const [, owner = '', name = ''] = /^(?:(.*)\/)?(.*)$/.exec(this._name.value.trim()) ?? [];
      const made = (await this._watch.post(`/checkpoints/${best.trial}/${best.id}/register`, {
        owner,
        name
      })) as Registered;
      const { version } = made;
      setText(
        this._acting.said,
        `${made.new ? 'registered as' : 'it is'} ${version.name} ${version.version}${made.new ? '' : ' already'}, step ${version.step}`
      );
      show(this._naming, false);
    }, this._register);
  }

  private async _checkpoints(): Promise<CheckpointInfo[]> {
    return ((await this._watch.ask('/checkpoints')) as { checkpoints: CheckpointInfo[] }).checkpoints;
  }

  private _list(): Promise<boolean> {
    return this._acting.run(async () => {
      const checkpoints = await this._checkpoints();
      setChildren(
        this._rows,
        checkpoints.map(each => this._row(each))
      );
      if (checkpoints.length === 0) {
        throw new Error(NONE);
      }
    });
  }

  private _row({ id, trial, step, epoch, bytes, kept }: CheckpointInfo): HTMLElement {
    const { number } = this._watch.look;
    const command = `%dl checkpoint download ${number}.${trial} --step ${step}`;
    const copied = button('Copy command', () => this._copy(command), 'dl-link');
    setAttribute(copied, 'title', command);
    const fetched = async (): Promise<void> => {
      const file = await this._watch.file(`/checkpoints/${trial}/${id}/files.tar`);
      download(`checkpoint-${number}.${trial}-${id}.tar`, file);
    };
    const get = button('Download', () => void this._acting.run(fetched, get), 'dl-link');
    const row = cells([`${trial}`, `${step}`, String(Number(epoch.toFixed(2))), size(bytes), get, kept.join(', ')]);
    get.after(copied);
    return row;
  }

  private _copy(text: string, what = `: ${text}`): void {
    void copy(text).then(done => setText(this._acting.said, done ? `copied${what}` : text));
  }
}
