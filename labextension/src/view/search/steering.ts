/** Actions on a search and its trials: promote, prune, and extend the search. */

import type { SearchStatus, TrialRow } from '../../api/types';
import { ended } from '../../model/overview';
import { usesModel } from '../../model/text';
import type { Act, Look, Steer, Watch } from '../../service/watch';
import { h, setAttribute, show } from '../dom';
import { Attempt, form, submit } from '../form';
import { Question, STOP } from '../question';

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

/** Return whether a search of trainings has completed and can be extended, as the service is connected. */
export function mayHaveMore({ connection, heard, overview }: Look): boolean {
  return (
    heard &&
    ['live', 'ended'].includes(connection) &&
    overview?.experiment.state === 'completed' &&
    !usesModel(overview.experiment.config)
  );
}

export class Steering {
  private readonly _question = new Question({
    text: STOP.text,
    keep: 'Leave it',
    act: 'Prune it'
  });
  private readonly _acting = new Attempt();
  private readonly _trials = h('input', { type: 'number', step: 1, required: true });
  private readonly _go = submit('Continue');
  private _total = 0;
  readonly root = h('div', {}, this._question.root, this._acting.error);
  /** Form for the new total number of trials. */
  readonly more = form(
    'More trials',
    () => void this._act('extend', { trials: this._trials.valueAsNumber }),
    h('label', {}, 'Continue to', this._trials, 'trials'),
    this._go
  );

  constructor(private readonly _watch: Pick<Watch, 'act'>) {}

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

  private _act(verb: Act, asked?: { trials: number }): Promise<boolean> {
    return this._acting.run(() => this._watch.act(verb, asked), this._go);
  }
}
