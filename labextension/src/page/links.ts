/** Links of the pages: to experiments, and to what is beside the service: the hub, the user's server, the docs. */

/** URLs of what is beside the service, by the text of their links. */
export type Links = Readonly<Record<string, string>>;

/** Return the links that the document names in the page's element. */
export function linksIn(root: HTMLElement): Links {
  return JSON.parse(root.dataset.links ?? '{}') as Links;
}

/** Return the URL of an experiment's page, relative to the cluster page. */
export function pageOf(experiment: number): string {
  return `experiments/${experiment}`;
}
