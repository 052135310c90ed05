/** Buttons for actions on an experiment: pause, resume, stop (after confirmation), and a menu of the rarer ones. */

import { stateOf } from '../model/overview';
import { runsAsItIs } from '../model/text';
import type { Look, Verb, Watch } from '../service/watch';
import { copy } from './clipboard';
import { button, changes, h, setText, show } from './dom';
import { download } from './download';
import { Attempt } from './form';
import { iconButton } from './icons';
import { Menu } from './menu';
import { DELETE, Question, STOP } from './question';
import { isThere, verbsFor } from './verbs';

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
  private readonly _acting = new Attempt();
  private readonly _question = new Question(STOP);
  private readonly _deletion = new Question(DELETE);
  private _timer: ReturnType<typeof setTimeout> | undefined;
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
    this.root = h('div', {}, this._question.root, this._deletion.root, this._acting.error);
  }

  update(look: Look): void {
    if (this._moved(look.connection, look.overview && stateOf(look.overview))) {
      this._acting.clear(); // the error of an earlier action
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
    show(this._export, some && isThere(look));
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

  private _act(verb: Verb): Promise<boolean> {
    return this._acting.run(
      () => this._watch.act(verb),
      ...[this._stop, this._pause, this._resume, this._delete, this._undelete]
    );
  }

  private _exported(): Promise<boolean> {
    const name = `experiment-${this._watch.look.number}.csv`;
    return this._acting.run(async () => download(name, await this._watch.file('/export.csv')));
  }

  private async _copied(): Promise<void> {
    const command = `%dl show ${this._watch.look.number}`;
    setText(this._said, (await copy(command)) ? 'copied' : command);
    clearTimeout(this._timer);
    this._timer = setTimeout(() => setText(this._said, ''), SAID_MS);
  }
}
