/** The code of an experiment, shown on demand. */

import type { Look, Watch } from '../service/watch';
import { Disclosure } from './disclosure';
import { h, setText, show } from './dom';
import { Attempt } from './form';
import { isThere } from './verbs';

export class SourcePart {
  private readonly _code = h('pre', { class: 'dl-pre', tabindex: 0, 'aria-label': 'Source' });
  private readonly _asking = new Attempt();
  private _read = false;

  readonly root = h(
    'section',
    { class: 'dl-source', hidden: true, 'aria-label': 'Source' },
    this._code,
    this._asking.error
  );

  readonly disclosure = new Disclosure('Source', this.root, () => void this._opened());

  constructor(private readonly _watch: Pick<Watch, 'ask'>) {}

  update(look: Look): void {
    this.disclosure.offer(look.heard && isThere(look));
  }

  private async _opened(): Promise<void> {
    await this._asking.run(async () => {
      if (!this._read) {
        setText(this._code, ((await this._watch.ask('/source')) as { definition: string }).definition);
        this._read = true; // it never changes
      }
    });
    show(this._code, this._read);
  }
}
