/** Open an experiment from a view, where the page has a place for it: a tab of JupyterLab. */

type Opener = (number: number) => void;

let opener: Opener | null = null;

/** Let `open` show the experiments that views link to; returns a function that ends this. */
export function opensExperiments(open: Opener): () => void {
  opener = open;
  return () => {
    opener = opener === open ? null : opener;
  };
}

/** Return the function that opens an experiment; null if this page has no place for it. */
export function experimentOpener(): Opener | null {
  return opener;
}
