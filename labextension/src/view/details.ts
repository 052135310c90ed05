/** Folded part of a view: what was captured, hyperparameters, guarantee, attempts and notes. */

import { paramsText } from '../model/text';
import type { Look } from '../service/watch';
import { changes, h, setLines, setText, show } from './dom';
import { factsOf, Notes } from './notes';

export class Details {
  private readonly _captured = h('div');
  private readonly _params = h('p', { class: 'dl-code' });
  private readonly _lists = [
    new Notes('Attempts', overview => factsOf(overview).Attempts),
    new Notes('Notes', overview => factsOf(overview).Notes, 'dl-informational')
  ];
  private readonly _changed = changes();
  readonly root = h(
    'details',
    { class: 'dl-fold dl-details' },
    h('summary', {}, 'Details'),
    this._captured,
    this._params,
    ...this._lists.map(list => list.root)
  );

  update(look: Look): void {
    this._lists.forEach(list => list.update(look));
    const params = look.overview?.experiment.params ?? null;
    if (this._changed(look.captured, params)) {
      setLines(this._captured, look.captured, () => h('p'));
      setText(this._params, params ? paramsText(params) : '');
    }
    const some = [this._captured, this._params].some(part => part.textContent !== '');
    show(this.root, some || this._lists.some(list => !list.root.hidden));
  }
}
