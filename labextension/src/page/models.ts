/** The page of registered models, at `models`: the view that JupyterLab shows, as one of those of the cluster page. */

import '../../style/pageframe.css';
import '../../style/view.css';

import { ModelsView } from '../register/modelsview';
import { opensExperiments } from '../service/opening';
import { linkList, PageFrame } from './frame';
import { pageOf } from './links';
import { PageSource } from './source';
import { ownToken } from './token';

const CLUSTER = './';
const OF_ADMINS = { 'Users and groups': `${CLUSTER}#accounts`, 'Audit log': `${CLUSTER}#audit` };

async function open(root: HTMLElement): Promise<void> {
  const source = new PageSource(document.baseURI, ownToken(location, sessionStorage, history));
  const views = linkList('Views', { Cluster: CLUSTER, Models: 'models' });
  views.querySelectorAll('a')[1]?.setAttribute('aria-current', 'page');
  const frame = new PageFrame(root, CLUSTER, views);
  const view = new ModelsView(frame.body, source, true);
  const person = await frame.greet(source, '', () => view.dispose());
  if (person?.admin) {
    views.append(...linkList('', OF_ADMINS).children);
  }
}

const root = document.getElementById('daylight');
if (root) {
  document.title = 'Models \u2013 Daylight';
  opensExperiments(number => location.assign(pageOf(number)));
  void open(root);
}
