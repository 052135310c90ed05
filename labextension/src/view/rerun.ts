/** Form that runs an experiment again: its hyperparameters stand there to be changed. */

import { assignmentsText, changesIn } from '../model/assignments';
import { experimentOpener } from '../service/opening';
import type { Look, Watch } from '../service/watch';
import { Disclosure } from './disclosure';
import { button, h } from './dom';
import { Attempt, form, submit } from './form';
import { isThere } from './verbs';

export class RerunPart {
  private readonly _changes = h('input', { type: 'text', placeholder: 'no hyperparameters', spellcheck: 'false' });
  private readonly _go = submit('Run again');
  private readonly _running = new Attempt();

  readonly root: HTMLElement;
  readonly disclosure: Disclosure;

  constructor(private readonly _watch: Pick<Watch, 'rerun' | 'look'>) {
    this.root = h(
      'section',
      { class: 'dl-rerun', hidden: true, 'aria-label': 'Rerun' },
      h('strong', { class: 'dl-form-title' }, `Rerun #${_watch.look.number} with these values`),
      form('Rerun', () => void this._submit(), h('label', {}, 'Hyperparameters', this._changes), this._go),
      this._running.said,
      this._running.error
    );
    this.disclosure = new Disclosure('Rerun', this.root, () => this._opened());
  }

  update(look: Look): void {
    this.disclosure.offer(look.heard && isThere(look) && look.overview?.experiment.deleted_at === null);
  }

  private _opened(): void {
    this._running.clear();
    this._changes.value ||= assignmentsText(this._params);
    this._changes.focus();
  }

  private _submit(): Promise<boolean> {
    return this._running.run(async () => {
      const params = changesIn(this._changes.value, this._params);
      submittedAs(this._running.said, await this._watch.rerun({ params }));
    }, this._go);
  }

  private get _params(): Readonly<Record<string, unknown>> {
    return this._watch.look.overview?.experiment.params ?? {};
  }
}

/** Say under which number an experiment was submitted, with a link where the page can open it. */
export function submittedAs(said: HTMLElement, number: number): void {
  said.replaceChildren('submitted as ', experimentLink(number, `#${number}`, `#${number}: %dl show ${number}`));
}

/** Return a link to an experiment; where the page has no place for it, another text. */
export function experimentLink(number: number, text: string, instead = text): HTMLElement | string {
  const open = experimentOpener();
  return open ? button(text, () => open(number), 'dl-link') : instead;
}
