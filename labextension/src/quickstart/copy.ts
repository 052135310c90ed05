/** Copy the quickstart notebook to the user's files, by Jupyter's contents API. */

import type { Contents } from '@jupyterlab/services';

const STEM = 'daylight-quickstart';

/**
 * Write a notebook into a folder under a name that is free there; return its path.
 *
 * It is renamed to that name, since Jupyter refuses to rename onto a file and saves over one.
 */
export async function copyInto(
  contents: Pick<Contents.IManager, 'get' | 'newUntitled' | 'save' | 'rename' | 'delete'>,
  folder: string,
  notebook: unknown
): Promise<string> {
  const listed = (await contents.get(folder)).content as Contents.IModel[];
  const name = freeName(listed.map(each => each.name));
  const made = await contents.newUntitled({ path: folder, type: 'notebook' });
  try {
    await contents.save(made.path, { type: 'notebook', format: 'json', content: notebook });
    const above = made.path.slice(0, -made.name.length); // including the drive, if the folder is on one
    return (await contents.rename(made.path, above + name)).path;
  } catch (error) {
    await contents.delete(made.path).catch(() => undefined);
    throw error;
  }
}

/** Return the first of `daylight-quickstart.ipynb`, `daylight-quickstart-1.ipynb`, ... that is not taken. */
export function freeName(taken: readonly string[]): string {
  let name = `${STEM}.ipynb`;
  for (let count = 1; taken.includes(name); count++) {
    name = `${STEM}-${count}.ipynb`;
  }
  return name;
}
