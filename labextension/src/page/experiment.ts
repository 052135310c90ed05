/** The page of one experiment, at `experiments/12`: the view that JupyterLab shows, over the service's own API. */

import 'uplot/dist/uPlot.min.css';
import '../../style/pageframe.css';
import '../../style/view.css';

import type { Self } from '../api/types';
import { titleText } from '../model/text';
import { opensExperiments } from '../service/opening';
import { ServiceError } from '../service/source';
import { Watch } from '../service/watch';
import type { Look } from '../service/watch';
import { h } from '../view/dom';
import { ExperimentView } from '../view/view';
import { linksIn } from './links';
import type { Links } from './links';
import { PageSource } from './source';
import { ownToken } from './token';

const CLUSTER = '../';
const TOKENLESS = 'Its address alone does not sign you in. On the machine of the service, open it by: daylight open';
const HIDDEN = 'It may have been deleted for good, or it is an experiment that you may not see.';

class ExperimentPage {
  private readonly _hub: boolean; // which signs users in
  private readonly _who = h('p', { class: 'dl-who' });
  private readonly _body = h('main', { class: 'dl-page-body dl-alone' });
  private readonly _watch: Watch;
  private readonly _view: ExperimentView;

  constructor(
    root: HTMLElement,
    private readonly _source: PageSource,
    private readonly _number: number
  ) {
    const links = linksIn(root);
    this._hub = 'Home' in links;
    root.append(h('div', { class: 'dl-page' }, head(links, this._who), this._body));
    this._watch = new Watch(_source, _number);
    this._view = new ExperimentView(this._body, this._watch);
    this._watch.subscribe(look => this._changed(look));
    this._watch.start();
    document.addEventListener('visibilitychange', () => (document.hidden ? this._watch.rest() : this._watch.wake()));
    void this._greet();
  }

  private async _greet(): Promise<void> {
    try {
      const { person } = (await this._source.get('/me')) as Self;
      const about = person.admin ? ', administrator' : person.groups.length ? ` of ${person.groups.join(', ')}` : '';
      this._who.replaceChildren(h('b', {}, person.name), about);
    } catch (error) {
      if (error instanceof ServiceError && [401, 403].includes(error.status)) {
        this._refuse('This page does not know you', [this._hub ? error.message : `${TOKENLESS} ${this._number}`]);
      } // else the view says that the service cannot be reached
    }
  }

  private _changed({ overview, connection }: Look): void {
    if (overview) {
      document.title = `${titleText(overview)} \u2013 Daylight`;
    } else if (connection === 'gone') {
      this._refuse(`There is no experiment #${this._number} for you`, [HIDDEN]);
    }
  }

  /** Replace the view by sentences, and a way back. */
  private _refuse(title: string, sentences: readonly string[]): void {
    this._view.dispose();
    this._watch.dispose();
    const back = h('a', { class: 'dl-door', href: CLUSTER }, 'Open the cluster page');
    this._body.replaceChildren(
      h('section', { role: 'alert' }, h('h2', {}, title), ...sentences.map(each => h('p', {}, each)), h('p', {}, back))
    );
  }
}

function head(links: Links, who: HTMLElement): HTMLElement {
  const icon = document.querySelector<HTMLLinkElement>('link[rel=icon]')?.href ?? '';
  const sun = h('img', { src: icon, alt: '', width: 22, height: 22 });
  const title = h('h1', {}, h('a', { href: CLUSTER }, sun, 'Daylight'));
  const all = Object.entries({ 'Cluster page': CLUSTER, ...links });
  const nav = h('nav', { 'aria-label': 'Elsewhere' }, ...all.map(([text, href]) => h('a', { href }, text)));
  return h('header', { class: 'dl-page-head' }, title, nav, who);
}

const root = document.getElementById('daylight');
const number = Number(/(\d+)\/?$/.exec(location.pathname)?.[1]);
if (root && number) {
  document.title = `#${number} \u2013 Daylight`;
  opensExperiments(other => location.assign(String(other)));
  const base = new URL(CLUSTER, document.baseURI).href;
  new ExperimentPage(root, new PageSource(base, ownToken(location, sessionStorage, history)), number);
}
