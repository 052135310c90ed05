/** Says which data of a search could not be loaded, and asks for it again. */

import { button, h, setText, show } from '../dom';

/** Data that is requested by itself. */
export type Loaded = 'trials' | 'curves' | 'importance' | 'trial';

const NAMES: Readonly<Record<Loaded, string>> = {
  trials: 'trials',
  curves: 'learning curves',
  importance: 'importance',
  trial: 'curves of the trial'
};

export class LoadingProblem {
  private readonly _text = h('p');
  private _messages: ReadonlyMap<Loaded, string> = new Map();
  readonly root: HTMLElement;

  /** `retry` is called when the user asks for the data again. */
  constructor(retry: () => void) {
    this.root = h('div', { class: 'dl-trouble', role: 'alert', hidden: true }, this._text, button('Try again', retry));
  }

  /** Messages of what could not be loaded; another object after each change. */
  get of(): ReadonlyMap<Loaded, string> {
    return this._messages;
  }

  add(what: Loaded, message: string): void {
    this._set(new Map(this._messages).set(what, message));
  }

  solved(what: Loaded): void {
    if (this._messages.has(what)) {
      this._set(new Map([...this._messages].filter(([each]) => each !== what)));
    }
  }

  private _set(messages: ReadonlyMap<Loaded, string>): void {
    this._messages = messages;
    setText(this._text, problemText(messages));
    show(this.root, messages.size > 0);
  }
}

/** Say what could not be loaded; what failed for the same reason is said together. */
export function problemText(messages: ReadonlyMap<Loaded, string>): string {
  const reasons = [...new Set(messages.values())];
  return reasons
    .map(reason => {
      const names = [...messages].filter(([, message]) => message === reason).map(([what]) => NAMES[what]);
      return `Could not load ${names.join(', ')}: ${reason}`;
    })
    .join('; ');
}

/** Return what stands in the place of data that is not there yet. */
export function notLoaded(what: Loaded, failed: ReadonlyMap<Loaded, string>): string {
  return failed.has(what) ? 'could not be loaded' : 'loading';
}
