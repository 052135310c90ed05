/** Links of the pages: to experiments, and to what is beside the service: the hub, the user's server, the docs. */

/** Places beside the service, by the text of their links. */
export type Places = Readonly<Record<string, string>>;

/** Return the places that the document names in the page's element. */
export function placesIn(root: HTMLElement): Places {
  return JSON.parse(root.dataset.places ?? '{}') as Places;
}

/** Return the URL of an experiment's page, relative to the cluster page. */
export function pageOf(experiment: number): string {
  return `experiments/${experiment}`;
}
