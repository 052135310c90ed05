/** Head and body of a page without React, as of an experiment: who is signed in, links, and why there is nothing else. */

import type { Self } from '../api/types';
import { ServiceError } from '../service/source';
import { h } from '../view/dom';
import { linksIn } from './links';
import type { Links } from './links';
import type { PageSource } from './source';

const TOKENLESS = 'Its address alone does not sign you in: on the machine of the service, run daylight open';

export class PageFrame {
  private readonly _hub: boolean; // which signs users in
  private readonly _who = h('p', { class: 'dl-who' });
  readonly body = h('main', { class: 'dl-page-body dl-alone' });

  /** `back` is the address of the cluster page; `views` are links to its views, if this page is one of these. */
  constructor(
    root: HTMLElement,
    private readonly _back: string,
    views: HTMLElement | null = null
  ) {
    const links = linksIn(root);
    this._hub = 'Home' in links;
    const icon = document.querySelector<HTMLLinkElement>('link[rel=icon]')?.href ?? '';
    const sun = h('img', { src: icon, alt: '', width: 22, height: 22 });
    const title = h('h1', {}, h('a', { href: _back }, sun, 'Daylight'));
    const elsewhere = linkList('Elsewhere', views ? links : { 'Cluster page': _back, ...links });
    const head = h('header', { class: 'dl-page-head' }, title, views, elsewhere, this._who);
    root.append(h('div', { class: 'dl-page' }, head, this.body));
  }

  /** Show and return the user who is signed in; null without one, after `refused` was called. */
  async greet(source: PageSource, what: string, refused: () => void): Promise<Self['person'] | null> {
    try {
      const { person } = (await source.get('/me')) as Self;
      const about = person.admin ? ', administrator' : person.groups.length ? ` of ${person.groups.join(', ')}` : '';
      this._who.replaceChildren(h('b', {}, person.name), about);
      return person;
    } catch (error) {
      if (error instanceof ServiceError && [401, 403].includes(error.status)) {
        refused();
        this.refuse('This page does not know you', [this._hub ? error.message : `${TOKENLESS} ${what}`.trim()]);
      } // else what is shown says that the service cannot be reached
      return null;
    }
  }

  /** Replace the body by sentences, and a way back. */
  refuse(title: string, sentences: readonly string[]): void {
    const back = h('a', { class: 'dl-door', href: this._back }, 'Open the cluster page');
    this.body.replaceChildren(
      h('section', { role: 'alert' }, h('h2', {}, title), ...sentences.map(each => h('p', {}, each)), h('p', {}, back))
    );
  }
}

export function linkList(name: string, links: Links): HTMLElement {
  return h('nav', { 'aria-label': name }, ...Object.entries(links).map(([text, href]) => h('a', { href }, text)));
}
