/** Registered models: a table of all, and the versions, the aliases and the log of the one that is chosen. */

import type { Model, ModelChange, ModelVersion, Self } from '../api/types';
import { num } from '../model/curves';
import { whenText } from '../model/dates';
import { aliasesOf, changeText, mayChange, modelTitle } from '../model/register';
import { number } from '../model/text';
import { messageOf } from '../service/source';
import type { Source } from '../service/source';
import { numeric, plain, sorted, type TableColumn } from '../table/columns';
import { button, type Child, h, keepKeys, setLines, setText, show } from '../view/dom';
import { Attempt, form, submit } from '../view/form';
import { experimentLink } from '../view/rerun';
import { Polling } from '../view/search/polling';
import { SortedTable } from '../view/sortedtable';

const EVERY_MS = 5000;
const DIGEST = 10; // characters

type Shown<Row> = TableColumn<Row> & { readonly content?: (row: Row) => readonly Child[] };

/** Table that the user sorts by its columns; its rows are made anew by each update. */
class Rows<Row> {
  private _sort = '';
  private _falls = false;
  private _columns: readonly Shown<Row>[] = [];
  private _rows: readonly Row[] = [];
  private readonly _table: SortedTable<Row>;
  readonly root: HTMLElement;

  constructor(name: string, key: (row: Row) => number | string) {
    this._table = new SortedTable({
      name,
      look: 'dl-models-table',
      key,
      make: row => ({ root: h('tr', {}, ...this._columns.map(column => cell(column, row))), update: () => undefined }),
      sorted: column => {
        this._falls = column === this._sort ? !this._falls : (this._column(column)?.falls ?? false);
        this._sort = column;
        this.update(this._columns, this._rows);
      }
    });
    this.root = this._table.root;
  }

  update(columns: readonly Shown<Row>[], rows: readonly Row[]): void {
    this._columns = columns;
    this._rows = rows;
    const column = this._column(this._sort);
    const direction = this._falls ? 'descending' : 'ascending';
    this._table.forget();
    this._table.update(columns, name => (name === this._sort ? direction : null), [
      { title: '', rows: column ? sorted(rows, column, this._falls) : rows }
    ]);
  }

  dispose(): void {
    this._table.dispose();
  }

  private _column(name: string): Shown<Row> | undefined {
    return this._columns.find(each => each.name === name);
  }
}

function cell<Row>(column: Shown<Row>, row: Row): HTMLElement {
  return h('td', { class: column.numeric ? 'dl-numeric' : '' }, ...(column.content?.(row) ?? [column.cell(row)]));
}

export class ModelsView {
  private readonly _empty = h(
    'p',
    { class: 'dl-empty', hidden: true },
    'No model is registered yet: ',
    h('code', {}, 'daylight register 12 --as memes'),
    ' makes the best checkpoint of experiment 12 the first version of memes.'
  );
  private readonly _error = h('p', { class: 'dl-act-error', role: 'alert' });
  private readonly _list = new Rows<Model>('Models', keyOf);
  private readonly _title = h('h3', { class: 'dl-title' });
  private readonly _versions = new Rows<ModelVersion>('Versions', each => each.version);
  private readonly _log = new Rows<ModelChange>('Changes', each => each.number);
  private readonly _known = h('datalist', { id: 'dl-aliases' });
  private readonly _alias = h('input', { list: 'dl-aliases', required: true, placeholder: 'production' });
  private readonly _to = h('select');
  private readonly _why = h('input', { maxlength: 1000 });
  private readonly _set = submit('Set');
  private readonly _unset = button('Unset', () => void this._change('unset'));
  private readonly _protect = button('Protect', () => {
    void this._change(this._isProtected ? 'unprotect' : 'protect');
  });
  private readonly _changing = new Attempt();
  private readonly _form = form(
    'Aliases',
    () => void this._change('set'),
    h('label', {}, 'Alias', this._alias, this._known),
    h('label', {}, 'to version', this._to),
    h('label', {}, 'Why', this._why),
    this._set,
    this._unset,
    this._protect
  );
  private readonly _one = h(
    'section',
    { 'aria-labelledby': 'dl-model', hidden: true },
    this._title,
    this._versions.root,
    this._form,
    this._changing.said,
    this._changing.error,
    this._log.root
  );
  private readonly _root = h(
    'article',
    { class: 'dl-sheet dl-models', 'aria-label': 'Models', onkeydown: keepKeys },
    this._error,
    this._empty,
    this._list.root,
    this._one
  );
  private readonly _polling: Polling<Model[]>;
  private _me: Self['person'] | null = null;
  private _models: readonly Model[] = [];
  private _told = ''; // newest answer, as text
  private _chosen = ''; // key of a model

  constructor(
    node: HTMLElement,
    private readonly _source: Pick<Source, 'get' | 'post'>,
    private _watched: boolean
  ) {
    this._title.id = 'dl-model';
    this._form.addEventListener('input', () => this._offer());
    show(this._list.root, false);
    node.append(this._root);
    this._polling = new Polling(
      () => this._ask(),
      models => this._know(models),
      error => {
        setText(this._error, messageOf(error));
        this._again();
      },
      EVERY_MS
    );
    document.addEventListener('visibilitychange', this._again);
    this._again();
  }

  /** Whether the view is visible, and so kept up to date. */
  set watched(watched: boolean) {
    this._watched = watched;
    this._again();
  }

  retry(): void {
    this._polling.want(true);
  }

  dispose(): void {
    document.removeEventListener('visibilitychange', this._again);
    this._polling.dispose();
    [this._list, this._versions, this._log].forEach(each => each.dispose());
    this._root.remove();
  }

  private readonly _again = (): void => {
    if (this._watched && !document.hidden) {
      this._polling.want();
    }
  };

  private async _ask(): Promise<Model[]> {
    this._me ??= ((await this._source.get('/me')) as Self).person;
    return ((await this._source.get('/models')) as { models: Model[] }).models;
  }

  private _know(models: readonly Model[]): void {
    const told = JSON.stringify(models);
    setText(this._error, '');
    if (told !== this._told) {
      this._told = told;
      this._models = models;
      this._draw();
    }
    this._again();
  }

  private get _model(): Model | undefined {
    return this._models.find(each => keyOf(each) === this._chosen) ?? this._models[0];
  }

  private _draw(): void {
    const models = this._models;
    const me = this._me?.name ?? '';
    show(this._empty, models.length === 0);
    show(this._list.root, models.length > 0);
    this._list.update(
      [
        {
          ...plain('model', model => modelTitle(model, me)),
          content: model => [this._pick(model, modelTitle(model, me))]
        },
        numeric('newest', model => newest(model)?.version ?? null, String),
        {
          ...plain('aliases', model => Object.keys(model.aliases).join()),
          content: model => chips(Object.entries(model.aliases).map(([alias, to]) => `${alias} ${to}`))
        },
        plain('metric', model => metricText(newest(model))),
        plain('by', model => newest(model)?.who ?? ''),
        when('registered', model => num(newest(model)?.at ?? 'NaN'))
      ],
      models
    );
    const model = this._model;
    show(this._one, model !== undefined);
    if (model) {
      setText(this._title, modelTitle(model, me));
      this._drawVersions(model);
      this._log.update(
        [
          when('time', each => num(each.at)),
          plain('by', each => each.who),
          plain('change', changeText),
          plain('why', each => each.note)
        ],
        [...model.log].reverse()
      );
      this._offerVersions(model);
    }
  }

  private _drawVersions(model: Model): void {
    const metrics = new Set(model.versions.flatMap(each => Object.keys(each.metrics)));
    this._versions.update(
      [
        { ...numeric('version', each => each.version, String), numeric: false },
        {
          ...plain('aliases', each => aliasesOf(model, each).join()),
          content: each => chips(aliasesOf(model, each))
        },
        {
          ...plain('checkpoint', each => each.step),
          content: ({ experiment, trial, search, step }) => [
            experimentLink(experiment, `#${experiment}${search ? `.${trial}` : ''}`),
            ` step ${step}`
          ]
        },
        ...[...metrics].map(name => ({
          ...numeric<ModelVersion>(`metric ${name}`, each => valueOf(each, name), number),
          head: name
        })),
        {
          ...plain('digest', each => each.digest),
          content: each => [h('code', { title: each.digest }, each.digest.slice(0, DIGEST))]
        },
        plain('by', each => each.who),
        when('registered', each => num(each.at)),
        plain('note', each => each.note)
      ],
      [...model.versions].reverse()
    );
  }

  private _pick(model: Model, title: string): HTMLElement {
    const chosen = model === this._model;
    const pressed = (): void => {
      this._chosen = keyOf(model);
      this._changing.clear();
      this._alias.value = '';
      this._draw();
    };
    return h('button', { type: 'button', class: 'dl-pick', 'aria-pressed': String(chosen), onclick: pressed }, title);
  }

  // Changes

  private get _isProtected(): boolean {
    return this._model?.protected.includes(this._alias.value) ?? false;
  }

  /** Offer what may be changed, to those who may. */
  private _offerVersions(model: Model): void {
    show(this._form, this._me !== null && mayChange(model, this._me));
    const before = this._to.value;
    const numbers = model.versions.map(each => String(each.version)).reverse();
    setLines(this._to, numbers, () => h('option'));
    this._to.value = numbers.includes(before) ? before : (numbers[0] ?? '');
    this._known.replaceChildren(...Object.keys(model.aliases).map(value => h('option', { value })));
    this._offer();
  }

  private _offer(): void {
    const known = this._model?.aliases[this._alias.value] !== undefined;
    this._unset.disabled = !known;
    this._protect.disabled = !known && !this._isProtected;
    setText(this._protect, this._isProtected ? 'Unprotect' : 'Protect');
  }

  private async _change(act: ModelChange['act']): Promise<void> {
    const model = this._model;
    const alias = this._alias.value;
    if (!model) {
      return;
    }
    const asked = {
      act,
      alias,
      ...(act === 'set' ? { version: Number(this._to.value) } : {}),
      expect: model.aliases[alias] ?? 0, // refused if another user has moved it since
      note: this._why.value.trim()
    };
    const path = `/models/${encodeURIComponent(keyOf(model))}`;
    const done = await this._changing.run(async () => {
      const changed = (await this._source.post(path, asked)) as Model;
      this._chosen = keyOf(model);
      this._know(this._models.map(each => (each === model ? changed : each)));
    }, this._set);
    if (!done) {
      this.retry(); // to show what is there now
    } else {
      this._why.value = '';
      const now = this._models.find(each => keyOf(each) === this._chosen)?.aliases[alias];
      const state = this._isProtected ? ', protected' : '';
      setText(this._changing.said, `${alias} is ${now === undefined ? 'not set' : `version ${now}`}${state}`);
    }
  }
}

/** Return a column of times, in seconds since the epoch. */
function when<Row>(name: string, value: (row: Row) => number): TableColumn<Row> {
  return { ...numeric(name, value, at => whenText(at, Date.now() / 1000)), numeric: false };
}

function keyOf({ owner, name }: Model): string {
  return `${owner}/${name}`;
}

function newest(model: Model): ModelVersion | undefined {
  return model.versions.at(-1);
}

function chips(texts: readonly string[]): Child[] {
  return texts.map(text => h('span', { class: 'dl-tag' }, text));
}

function valueOf({ metrics }: ModelVersion, name: string): number | null {
  const value = metrics[name];
  return value === undefined ? null : num(value);
}

function metricText(version: ModelVersion | undefined): string {
  const value = version ? valueOf(version, version.metric.name) : null;
  return version && value !== null ? `${version.metric.name} ${number(value)}` : '';
}
