/** Buttons for actions on an experiment: pause, resume, stop (after confirmation), and a menu of the rarer ones. */

import { stateOf } from '../model/overview';
import { runsAsItIs } from '../model/text';
import type { Look, Verb, Watch } from '../service/watch';
import { copy } from './clipboard';
import { button, changes, h, setText, show } from './dom';
import { download } from './download';
import { iconButton } from './icons';
import { Menu } from './menu';
import { DELETE, Question, STOP } from './question';
import { verbsFor } from './verbs';

const SAID_MS = 2000; // duration of the text "copied"

export class Actions {
  private readonly _stop = iconButton('Stop', 'stop', () => this._ask());
  private readonly _pause = iconButton('Pause', 'pause', () => void this._act('pause'));
  private readonly _resume = iconButton('Resume', 'resume', () => void this._act('resume'));
  private readonly _delete = button('Delete', () => this._askToDelete(), 'dl-danger');
  private readonly _undelete = button('Undelete', () => void this._act('undelete'));
  private readonly _export = button('Export CSV', () => void this._exported());
  private readonly _copy = button('Copy command', () => void this._copied());
  private readonly _said = h('span', { class: 'dl-said', role: 'status' });
  private readonly _error = h('p', { class: 'dl-act-error', role: 'alert' });
  private readonly _question = new Question(STOP);
  private readonly _deletion = new Question(DELETE);
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _acting = false;
  private readonly _moved = changes();

  readonly menu: Menu;
  readonly buttons: HTMLElement;
  readonly root: HTMLElement; // confirmation and error

  /** `openers` are the first items of the menu. */
  constructor(
    private readonly _watch: Pick<Watch, 'act' | 'file' | 'look'>,
    openers: readonly HTMLButtonElement[]
  ) {
    this.menu = new Menu('More actions', [...openers, this._export, this._copy, this._delete]);
    this.buttons = h(
      'div',
      { class: 'dl-actions' },
      this._said,
      this._resume,
      this._pause,
      this._stop,
      this._undelete,
      this.menu.root
    );
    this.root = h('div', {}, this._question.root, this._deletion.root, this._error);
  }

  update(look: Look): void {
    if (this._moved(look.connection, look.overview && stateOf(look.overview))) {
      setText(this._error, ''); // the error of an earlier action
    }
    const offered = verbsFor(look);
    const focused = this.buttons.contains(document.activeElement) ? document.activeElement : null;
    show(this._stop, offered.includes('stop'));
    show(this._pause, offered.includes('pause'));
    show(this._resume, offered.includes('resume'));
    show(this._delete, offered.includes('delete'));
    show(this._undelete, offered.includes('undelete'));
    const config = look.overview?.experiment.config;
    const some = look.curves.length > 0 || config === undefined || !runsAsItIs(config);
    show(this._export, some && look.overview !== null && look.connection !== 'gone' && look.connection !== 'foreign');
    if (!offered.includes('stop')) {
      this._question.close();
    }
    if (!offered.includes('delete')) {
      this._deletion.close();
    }
    if (focused instanceof HTMLElement && focused.hidden) {
      this.menu.opener.focus(); // return the focus to the button, for keyboard users
    }
  }

  dispose(): void {
    clearTimeout(this._timer);
  }

  private _ask(): void {
    this._question.open(`Stop #${this._watch.look.number} for good?`, this._stop, () => void this._act('stop'));
  }

  private _askToDelete(): void {
    this._deletion.open(`Delete #${this._watch.look.number}?`, this.menu.opener, () => void this._act('delete'));
  }

  private async _act(verb: Verb): Promise<void> {
    if (this._acting) {
      return;
    }
    this._busy(true);
    setText(this._error, '');
    try {
      await this._watch.act(verb);
    } catch (error) {
      setText(this._error, error instanceof Error ? error.message : String(error));
    }
    this._busy(false);
  }

  private _busy(acting: boolean): void {
    this._acting = acting;
    for (const each of [this._stop, this._pause, this._resume, this._delete, this._undelete]) {
      each.disabled = acting;
    }
  }

  private async _exported(): Promise<void> {
    setText(this._error, '');
    try {
      download(`experiment-${this._watch.look.number}.csv`, await this._watch.file('/export.csv'));
    } catch (error) {
      setText(this._error, error instanceof Error ? error.message : String(error));
    }
  }

  private async _copied(): Promise<void> {
    const command = `%dl show ${this._watch.look.number}`;
    setText(this._said, (await copy(command)) ? 'copied' : command);
    clearTimeout(this._timer);
    this._timer = setTimeout(() => setText(this._said, ''), SAID_MS);
  }
}
