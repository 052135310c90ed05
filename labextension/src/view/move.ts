/** Form that moves an experiment to another pool; there is none where the service has a single pool. */

import type { PoolStatus } from '../api/types';
import { ended } from '../model/overview';
import { choicesOf } from '../model/pools';
import type { Look, Watch } from '../service/watch';
import { Disclosure } from './disclosure';
import { changes, h, setText } from './dom';

export class MovePart {
  private readonly _pool = h('select');
  private readonly _go = h('button', { type: 'submit', class: 'dl-button' }, 'Move it');
  private readonly _said = h('p', { class: 'dl-dim', role: 'status' });
  private readonly _error = h('p', { class: 'dl-act-error', role: 'alert' });
  private _named: string | null = null; // pool, or several with commas, of the experiment's configuration
  private _asked = false; // whether the service was asked for its pools
  private _may = false; // whether the experiment can be moved
  private _pools: readonly PoolStatus[] = [];
  private readonly _changed = changes();

  readonly root: HTMLElement;
  readonly disclosure: Disclosure;

  constructor(private readonly _watch: Pick<Watch, 'act' | 'pools'>) {
    const submitted = (event: Event): void => {
      event.preventDefault();
      void this._submit();
    };
    const label = h('label', {}, 'Pool', this._pool);
    const form = h('form', { class: 'dl-more', 'aria-label': 'Move', onsubmit: submitted }, label, this._go);
    this.root = h('section', { class: 'dl-move', hidden: true, 'aria-label': 'Move' }, form, this._said, this._error);
    this.disclosure = new Disclosure('Move', this.root, () => this._opened());
    this.disclosure.offer(false);
  }

  update(look: Look): void {
    const overview = look.connection === 'gone' || look.connection === 'foreign' ? null : look.overview;
    this._may = overview !== null && look.heard && !ended(overview);
    const named = overview?.experiment.config.pool ?? null;
    if (this._may && !this._asked) {
      this._asked = true;
      void this._read();
    }
    if (this._changed(this._may, named)) {
      this._named = named;
      this._offer();
    }
  }

  private _opened(): void {
    setText(this._said, '');
    setText(this._error, '');
    void this._read();
    this._pool.focus();
  }

  private async _read(): Promise<void> {
    try {
      this._pools = await this._watch.pools();
      this._offer();
    } catch (error) {
      setText(this._error, error instanceof Error ? error.message : String(error));
    }
  }

  /** Offer the pools that the experiment can be moved to. */
  private _offer(): void {
    const choices = choicesOf(this._pools, this._named);
    const before = this._pool.value;
    const usable = choices.filter(each => !each.problem);
    this._pool.replaceChildren(
      ...choices.map(({ name, text, problem }) =>
        h('option', { value: name, disabled: problem !== '', title: problem }, text)
      )
    );
    this._pool.value = (usable.find(each => each.name === before) ?? usable[0])?.name ?? '';
    this._go.disabled = usable.length === 0;
    this.disclosure.offer(this._may && choices.length > 0);
  }

  private async _submit(): Promise<void> {
    if (this._go.disabled) {
      return;
    }
    const pool = this._pool.value;
    this._go.disabled = true;
    setText(this._error, '');
    setText(this._said, '');
    try {
      await this._watch.act('move', { pool });
      setText(this._said, `moved to ${pool}`);
    } catch (error) {
      setText(this._error, error instanceof Error ? error.message : String(error));
    }
    await this._read();
  }
}
