/** Actions on a search and its trials: promote, prune, and extend the search. */

import type { SearchStatus, TrialRow } from '../../api/types';
import { ended } from '../../model/overview';
import type { Act, Look, Steer, Watch } from '../../service/watch';
import { h, setAttribute, setText, show } from '../dom';
import { Question } from '../question';

/** Return the possible actions on a trial: paused trials can be promoted, unfinished ones pruned. */
export function steersFor(look: Look, row: TrialRow): Steer[] {
  if (!isOpen(look)) {
    return [];
  }
  switch (row.state) {
    case 'paused':
      return ['promote', 'prune'];
    case 'queued':
    case 'starting':
    case 'running':
    case 'releasing':
      return ['prune'];
    default:
      return [];
  }
}

/** Return whether trials can be steered: the search is active, and the service is connected. */
export function isOpen({ connection, overview }: Look): boolean {
  return connection === 'live' && overview !== null && !ended(overview) && overview.experiment.state !== 'stopping';
}

/** Return whether a search has completed and can be extended, as the service is connected. */
export function mayHaveMore({ connection, heard, overview }: Look): boolean {
  return heard && ['live', 'ended'].includes(connection) && overview?.experiment.state === 'completed';
}

export class Steering {
  private readonly _question = new Question({
    text: 'Its checkpoints and curves stay; it cannot go on.',
    keep: 'Leave it',
    act: 'Prune it'
  });
  private readonly _error = h('p', { class: 'dl-act-error', role: 'alert' });
  private readonly _trials = h('input', { type: 'number', step: 1, required: true });
  private readonly _go = h('button', { type: 'submit', class: 'dl-button' }, 'Continue');
  private _total = 0;
  private _acting = false;
  readonly root = h('div', {}, this._question.root, this._error);
  readonly more: HTMLFormElement; // form for the new total number of trials

  constructor(private readonly _watch: Pick<Watch, 'act'>) {
    const submitted = (event: Event): void => {
      event.preventDefault();
      void this._act('extend', { trials: this._trials.valueAsNumber });
    };
    const label = h('label', {}, 'Continue to', this._trials, 'trials');
    this.more = h('form', { class: 'dl-more', 'aria-label': 'More trials', onsubmit: submitted }, label, this._go);
  }

  update(look: Look, status: SearchStatus): void {
    show(this.more, mayHaveMore(look));
    const total = Object.values(status.counts).reduce((sum, count) => sum + count, 0);
    if (total !== this._total) {
      this._total = total;
      setAttribute(this._trials, 'min', String(total + 1));
      this._trials.value = String(2 * total);
    }
    if (!isOpen(look)) {
      this._question.close();
    }
  }

  /** Perform an action, after confirmation if it is final; `opener` is the pressed button. */
  steer(trial: number, verb: Steer, number: number, opener: HTMLElement): void {
    const act = (): void => void this._act(`trials/${trial}/${verb}`);
    if (verb === 'promote') {
      act();
    } else {
      this._question.open(`Prune ${number}.${trial} for good?`, opener, act);
    }
  }

  private async _act(verb: Act, asked?: { trials: number }): Promise<void> {
    if (this._acting) {
      return;
    }
    this._busy(true);
    setText(this._error, '');
    try {
      await this._watch.act(verb, asked);
    } catch (error) {
      setText(this._error, error instanceof Error ? error.message : String(error));
    }
    this._busy(false);
  }

  private _busy(acting: boolean): void {
    this._acting = acting;
    this._go.disabled = acting;
  }
}
