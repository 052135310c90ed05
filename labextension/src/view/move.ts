/** Form that moves an experiment to another pool; there is none where the service has a single pool. */

import type { PoolStatus } from '../api/types';
import { ended } from '../model/overview';
import { choicesOf } from '../model/pools';
import type { Look, Watch } from '../service/watch';
import { Disclosure } from './disclosure';
import { changes, h, setText } from './dom';
import { Attempt, form, submit } from './form';
import { isThere } from './verbs';

export class MovePart {
  private readonly _pool = h('select');
  private readonly _go = submit('Move it');
  private readonly _moving = new Attempt();
  private _named: string | null = null; // pool, or several with commas, of the experiment's configuration
  private _asked = false; // whether the service was asked for its pools
  private _may = false; // whether the experiment can be moved
  private _pools: readonly PoolStatus[] = [];
  private readonly _changed = changes();

  readonly root = h(
    'section',
    { class: 'dl-move', hidden: true, 'aria-label': 'Move' },
    form('Move', () => void this._submit(), h('label', {}, 'Pool', this._pool), this._go),
    this._moving.said,
    this._moving.error
  );
  readonly disclosure = new Disclosure('Move', this.root, () => this._opened());

  constructor(private readonly _watch: Pick<Watch, 'act' | 'pools'>) {
    this.disclosure.offer(false);
  }

  update(look: Look): void {
    const overview = isThere(look) ? look.overview : null;
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
    void this._read();
    this._pool.focus();
  }

  private async _read(): Promise<void> {
    await this._moving.run(async () => (this._pools = await this._watch.pools()));
    this._offer();
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
    const pool = this._pool.value;
    if (await this._moving.run(() => this._watch.act('move', { pool }), this._go)) {
      await this._read();
      setText(this._moving.said, `moved to ${pool}`);
    }
  }
}
