/** The quickstart's copy: a name that is free, in any folder of any drive, and nothing left where it fails. */

import type { Contents } from '@jupyterlab/services';

import { copyInto, freeName } from '../src/quickstart/copy';

const NOTEBOOK = { cells: [], metadata: {}, nbformat: 4, nbformat_minor: 5 };

/** A folder whose files are there by name; what Jupyter's contents API does of the little that is asked of it. */
class Folder {
  readonly files = new Map<string, unknown>();

  constructor(
    private readonly _path: string,
    ...names: string[]
  ) {
    names.forEach(name => this.files.set(name, 'mine'));
  }

  get(path: string): Promise<Contents.IModel> {
    const content = [...this.files.keys()].map(name => ({ name }));
    return path === this._path ? answer({ content }) : Promise.reject(new Error(`no folder ${path}`));
  }

  newUntitled({ path }: Contents.ICreateOptions = {}): Promise<Contents.IModel> {
    this.files.set('Untitled.ipynb', null);
    return path === this._path ? this._model('Untitled.ipynb') : Promise.reject(new Error(`no folder ${path}`));
  }

  save(path: string, options: Partial<Contents.IModel> = {}): Promise<Contents.IModel> {
    this.files.set(this._name(path), options.content);
    return this._model(this._name(path));
  }

  rename(from: string, to: string): Promise<Contents.IModel> {
    if (this.files.has(this._name(to))) {
      return Promise.reject(new Error('File already exists'));
    }
    this.files.set(this._name(to), this.files.get(this._name(from)));
    this.files.delete(this._name(from));
    return this._model(this._name(to));
  }

  delete(path: string): Promise<void> {
    this.files.delete(this._name(path));
    return Promise.resolve();
  }

  private _model(name: string): Promise<Contents.IModel> {
    return answer({ name, path: within(this._path) + name });
  }

  private _name(path: string): string {
    return path.slice(path.search(/[^/:]*$/));
  }
}

/** What stands before a name in a folder, which may be the top of a drive. */
function within(folder: string): string {
  return folder && !folder.endsWith(':') ? `${folder}/` : folder;
}

function answer(model: object): Promise<Contents.IModel> {
  return Promise.resolve(model as Contents.IModel);
}

test('the first name that is free is taken', () => {
  expect(freeName([])).toBe('daylight-quickstart.ipynb');
  expect(freeName(['other.ipynb', 'daylight-quickstart.ipynb'])).toBe('daylight-quickstart-1.ipynb');
  const gap = ['daylight-quickstart.ipynb', 'daylight-quickstart-1.ipynb', 'daylight-quickstart-3.ipynb'];
  expect(freeName(gap)).toBe('daylight-quickstart-2.ipynb');
});

test.each(['', 'a/b', 'RTC:', 'RTC:a'])('a copy goes into the folder %p, a second one beside it', async path => {
  const folder = new Folder(path, 'mine.ipynb');
  expect(await copyInto(folder, path, NOTEBOOK)).toBe(`${within(path)}daylight-quickstart.ipynb`);
  expect(await copyInto(folder, path, NOTEBOOK)).toBe(`${within(path)}daylight-quickstart-1.ipynb`);
  expect(Object.fromEntries(folder.files)).toEqual({
    'mine.ipynb': 'mine',
    'daylight-quickstart.ipynb': NOTEBOOK,
    'daylight-quickstart-1.ipynb': NOTEBOOK
  });
});

test('a file that came meanwhile is left as it is, and no half of a copy stays', async () => {
  const folder = new Folder('');
  const save = folder.save.bind(folder);
  folder.save = (...asked) => {
    folder.files.set('daylight-quickstart.ipynb', 'mine');
    return save(...asked);
  };
  await expect(copyInto(folder, '', NOTEBOOK)).rejects.toThrow('File already exists');
  expect(Object.fromEntries(folder.files)).toEqual({ 'daylight-quickstart.ipynb': 'mine' });
});
