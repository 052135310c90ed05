/** Form that runs an experiment again, with other hyperparameters if some are written. */

import { assignmentsIn } from '../model/assignments';
import type { Look, Watch } from '../service/watch';
import { Disclosure } from './disclosure';
import { h, setText } from './dom';

export class RerunPart {
  private readonly _changes = h('input', { type: 'text', placeholder: 'lr=0.01 width=64', spellcheck: 'false' });
  private readonly _go = h('button', { type: 'submit', class: 'dl-button' }, 'Run again');
  private readonly _said = h('p', { class: 'dl-dim', role: 'status' });
  private readonly _error = h('p', { class: 'dl-act-error', role: 'alert' });

  readonly root: HTMLElement;
  readonly disclosure: Disclosure;

  constructor(private readonly _watch: Pick<Watch, 'rerun'>) {
    const submitted = (event: Event): void => {
      event.preventDefault();
      void this._submit();
    };
    const label = h('label', {}, 'Changes', this._changes);
    const form = h('form', { class: 'dl-more', 'aria-label': 'Rerun', onsubmit: submitted }, label, this._go);
    this.root = h('section', { class: 'dl-rerun', hidden: true, 'aria-label': 'Rerun' }, form, this._said, this._error);
    this.disclosure = new Disclosure('Rerun', this.root, () => this._opened());
  }

  update(look: Look): void {
    const there = look.overview !== null && look.heard && look.connection !== 'gone' && look.connection !== 'foreign';
    this.disclosure.offer(there && look.overview.experiment.deleted_at === null);
  }

  private _opened(): void {
    setText(this._said, '');
    setText(this._error, '');
    this._changes.focus();
  }

  private async _submit(): Promise<void> {
    if (this._go.disabled) {
      return;
    }
    this._go.disabled = true;
    setText(this._error, '');
    setText(this._said, '');
    try {
      const number = await this._watch.rerun(assignmentsIn(this._changes.value));
      setText(this._said, `submitted as #${number}: %dl show ${number}`);
    } catch (error) {
      setText(this._error, error instanceof Error ? error.message : String(error));
    }
    this._go.disabled = false;
  }
}
