/** Form that runs an experiment again: its hyperparameters stand there to be changed. */

import { assignmentsText, changesIn } from '../model/assignments';
import { experimentOpener } from '../service/opening';
import type { Look, Watch } from '../service/watch';
import { Disclosure } from './disclosure';
import { button, h, setText } from './dom';

export class RerunPart {
  private readonly _changes = h('input', { type: 'text', placeholder: 'no hyperparameters', spellcheck: 'false' });
  private readonly _go = h('button', { type: 'submit', class: 'dl-button' }, 'Run again');
  private readonly _said = h('p', { class: 'dl-dim', role: 'status' });
  private readonly _error = h('p', { class: 'dl-act-error', role: 'alert' });

  readonly root: HTMLElement;
  readonly disclosure: Disclosure;

  constructor(private readonly _watch: Pick<Watch, 'rerun' | 'look'>) {
    const submitted = (event: Event): void => {
      event.preventDefault();
      void this._submit();
    };
    const title = h('strong', { class: 'dl-form-title' }, `Rerun #${_watch.look.number} with these values`);
    const label = h('label', {}, 'Hyperparameters', this._changes);
    const form = h('form', { class: 'dl-more', 'aria-label': 'Rerun', onsubmit: submitted }, label, this._go);
    this.root = h(
      'section',
      { class: 'dl-rerun', hidden: true, 'aria-label': 'Rerun' },
      title,
      form,
      this._said,
      this._error
    );
    this.disclosure = new Disclosure('Rerun', this.root, () => this._opened());
  }

  update(look: Look): void {
    const there = look.overview !== null && look.heard && look.connection !== 'gone' && look.connection !== 'foreign';
    this.disclosure.offer(there && look.overview.experiment.deleted_at === null);
  }

  private _opened(): void {
    setText(this._said, '');
    setText(this._error, '');
    this._changes.value ||= assignmentsText(this._params);
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
      submittedAs(this._said, await this._watch.rerun({ params: changesIn(this._changes.value, this._params) }));
    } catch (error) {
      setText(this._error, error instanceof Error ? error.message : String(error));
    }
    this._go.disabled = false;
  }

  private get _params(): Readonly<Record<string, unknown>> {
    return this._watch.look.overview?.experiment.params ?? {};
  }
}

/** Say under which number an experiment was submitted, with a link where the page can open it. */
export function submittedAs(said: HTMLElement, number: number): void {
  const open = experimentOpener();
  const link = open ? button(`#${number}`, () => open(number), 'dl-link') : `#${number}: %dl show ${number}`;
  said.replaceChildren('submitted as ', link);
}
