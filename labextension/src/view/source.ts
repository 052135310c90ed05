/** The code of an experiment, shown on demand. */

import type { Look, Watch } from '../service/watch';
import { Disclosure } from './disclosure';
import { h, setText, show } from './dom';

export class SourcePart {
  private readonly _code = h('pre', { class: 'dl-pre', tabindex: 0, 'aria-label': 'Source' });
  private readonly _error = h('p', { class: 'dl-act-error', role: 'alert' });
  private _read = false;

  readonly root = h(
    'section',
    { class: 'dl-source', hidden: true, 'aria-label': 'Source' },
    h('strong', { class: 'dl-form-title' }, 'Source'),
    this._code,
    this._error
  );

  readonly disclosure = new Disclosure('Source', this.root, () => this._opened());

  constructor(private readonly _watch: Pick<Watch, 'ask'>) {}

  update(look: Look): void {
    const there = look.overview !== null && look.heard && look.connection !== 'gone' && look.connection !== 'foreign';
    this.disclosure.offer(there);
  }

  private _opened(): void {
    if (!this._read) {
      void this._ask();
    }
  }

  private async _ask(): Promise<void> {
    setText(this._error, '');
    try {
      const { definition } = (await this._watch.ask('/source')) as { definition: string };
      setText(this._code, definition);
      this._read = true; // it never changes
    } catch (error) {
      setText(this._error, error instanceof Error ? error.message : String(error));
    }
    show(this._code, this._read);
  }
}
