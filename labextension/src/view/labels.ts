/** Tags and note below the header of a view, and the form that edits them and the name in place. */

import { editOf, type Labels, labelsOf, tagsIn } from '../model/labels';
import type { Look, Watch } from '../service/watch';
import { Disclosure } from './disclosure';
import { button, changes, h, setLines, setText, show } from './dom';
import { Attempt, submit } from './form';
import { isThere } from './verbs';

/** Form fields for name, tags and note, also used by JupyterLab's dialog. */
export class LabelFields {
  private readonly _name = h('input', { type: 'text', maxlength: 200 });
  private readonly _tags = h('input', { type: 'text', placeholder: 'baseline, paper', spellcheck: 'false' });
  private readonly _note = h('textarea', { rows: 3, maxlength: 4000 });
  readonly root = h(
    'div',
    { class: 'dl-label-fields' },
    h('label', {}, 'Name', this._name),
    h('label', {}, 'Tags', this._tags),
    h('label', {}, 'Note', this._note)
  );

  get labels(): Labels {
    return { name: this._name.value.trim(), tags: tagsIn(this._tags.value), note: this._note.value.trim() };
  }

  set labels({ name, tags, note }: Labels) {
    this._name.value = name;
    this._tags.value = tags.join(', ');
    this._note.value = note;
  }

  focus(): void {
    this._name.focus();
  }
}

export class LabelPart {
  private readonly _tags = h('ul', { class: 'dl-tags', 'aria-label': 'Tags' });
  private readonly _note = h('p', { class: 'dl-note', 'aria-label': 'Note' });
  private readonly _fields = new LabelFields();
  private readonly _save = submit('Save');
  private readonly _saving = new Attempt();
  private readonly _form = h(
    'form',
    { class: 'dl-label-form', 'aria-label': 'Edit labels' },
    this._fields.root,
    h(
      'div',
      { class: 'dl-actions' },
      this._save,
      button('Cancel', () => this.disclosure.close())
    ),
    this._saving.error
  );
  private readonly _changed = changes();
  private _before: Labels | null = null; // labels when the form was opened

  readonly disclosure = new Disclosure('Edit', this._form, () => this._opened());
  readonly root = h('div', { class: 'dl-labels' }, this._tags, this._note, this._form);

  constructor(private readonly _watch: Pick<Watch, 'act' | 'look'>) {
    this._form.addEventListener('submit', event => {
      event.preventDefault();
      void this._submit();
    });
    this._form.addEventListener('keydown', event => this._key(event));
  }

  update(look: Look): void {
    const experiment = look.overview?.experiment ?? null;
    this.disclosure.offer(isThere(look));
    if (!this._changed(experiment)) {
      return;
    }
    const { tags, note } = experiment ? labelsOf(experiment) : { tags: [], note: '' };
    setLines(this._tags, tags, () => h('li', { class: 'dl-tag' }));
    show(this._tags, tags.length > 0);
    setText(this._note, note);
    show(this._note, note !== '');
  }

  private _opened(): void {
    const experiment = this._watch.look.overview?.experiment;
    if (experiment) {
      this._before = this._fields.labels = labelsOf(experiment);
      this._saving.clear();
      this._fields.focus();
    }
  }

  private _submit(): Promise<boolean> {
    return this._saving.run(async () => {
      const edit = this._before && editOf(this._before, this._fields.labels);
      if (edit) {
        await this._watch.act('label', edit);
      }
      this.disclosure.close();
    }, this._save);
  }

  private _key(event: KeyboardEvent): void {
    if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      this.disclosure.close();
    } else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      event.stopPropagation();
      void this._submit();
    }
  }
}
