/** The page at the service's root: who uses the cluster and, for administrators, what they may change. */

import 'uplot/dist/uPlot.min.css';
import '../../style/page.css';

import * as React from 'react';
import { createRoot } from 'react-dom/client';

import { App } from './app';
import { Cluster } from './cluster';
import { linksIn } from './links';
import { PageSource } from './source';
import { ownToken } from './token';

const root = document.getElementById('daylight');
if (root) {
  const source = new PageSource(document.baseURI, ownToken(location, sessionStorage, history));
  const cluster = new Cluster(source, () => Date.now() / 1000);
  createRoot(root).render(
    <React.StrictMode>
      <App cluster={cluster} links={linksIn(root)} />
    </React.StrictMode>
  );
}
