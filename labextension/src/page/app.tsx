/** The whole page: its head, the view that is looked at, and what was done last. */

import * as React from 'react';

import { Accounts } from './accounts';
import { Audit } from './audit';
import type { Cluster } from './cluster';
import { isView, type ClusterSnapshot, type View } from './clusterstate';
import { Mine } from './myaccount';
import { Nodes, Pools } from './nodes';
import { Queue } from './queue';
import { Notice, StaleNotice } from './messages';

const TITLES: Record<View, string> = { cluster: 'Cluster', accounts: 'Users and groups', audit: 'Audit log' };

export function App({ cluster }: { cluster: Cluster }): React.JSX.Element {
  const known = React.useSyncExternalStore(cluster.subscribe, () => cluster.known);
  const done = React.useSyncExternalStore(cluster.subscribe, () => cluster.done);
  const [view, setView] = React.useState<View>(viewIn(location.hash));
  React.useEffect(() => {
    const moved = (): void => setView(viewIn(location.hash));
    addEventListener('hashchange', moved);
    return () => removeEventListener('hashchange', moved);
  }, []);
  const admin = known.me?.person.admin ?? false;
  const shown = admin || known.me === null ? view : 'cluster';
  React.useEffect(() => cluster.show(shown), [cluster, shown]);
  React.useEffect(() => {
    const undo = (event: KeyboardEvent): void => {
      const typing = event.target instanceof HTMLInputElement;
      if (!typing && event.key === 'z' && (event.ctrlKey || event.metaKey) && !event.shiftKey) {
        void cluster.undo();
      }
    };
    addEventListener('keydown', undo);
    return () => removeEventListener('keydown', undo);
  }, [cluster]);
  return (
    <div className="dl-page">
      <Head known={known} view={shown} admin={admin} />
      {known.error && <StaleNotice error={known.error} at={known.at} again={() => cluster.refresh()} />}
      <main className="dl-page-body" data-stale={known.error !== null}>
        {known.me ? <Body cluster={cluster} known={known} view={shown} /> : <Beginning known={known} />}
      </main>
      <Notice done={done} undo={() => void cluster.undo()} dismiss={() => cluster.dismiss()} />
    </div>
  );
}

function Body({ cluster, known, view }: { cluster: Cluster; known: ClusterSnapshot; view: View }): React.JSX.Element {
  switch (view) {
    case 'cluster':
      return (
        <>
          <Mine known={known} />
          <Queue cluster={cluster} known={known} />
          <Nodes cluster={cluster} known={known} />
          <Pools known={known} />
        </>
      );
    case 'accounts':
      return <Accounts cluster={cluster} known={known} />;
    case 'audit':
      return <Audit cluster={cluster} known={known} />;
  }
}

function Beginning({ known }: { known: ClusterSnapshot }): React.JSX.Element | null {
  return known.error ? null : <p className="dl-empty">Looking at the cluster…</p>;
}

function Head({ known, view, admin }: { known: ClusterSnapshot; view: View; admin: boolean }): React.JSX.Element {
  const person = known.me?.person;
  return (
    <header className="dl-page-head">
      <h1>
        <Sun />
        Daylight
      </h1>
      {admin && (
        <nav aria-label="Views">
          {Object.entries(TITLES).map(([name, title]) => (
            <a key={name} href={`#${name}`} aria-current={name === view ? 'page' : undefined}>
              {title}
            </a>
          ))}
        </nav>
      )}
      {person && (
        <p className="dl-who">
          <b>{person.name}</b>
          {admin ? ', administrator' : person.groups.length > 0 && ` of ${person.groups.join(', ')}`}
        </p>
      )}
    </header>
  );
}

function Sun(): React.JSX.Element {
  return (
    <svg viewBox="0 0 24 24" width="22" height="22" fill="currentColor" aria-hidden="true">
      <path d="M6 16a6 6 0 0 1 12 0z" />
      <path d="M2 18.5h20v2H2zM11 3h2v4h-2zM4.22 6.64l1.42-1.42 2.83 2.83-1.42 1.42zM18.36 5.22l1.42 1.42-2.83 2.83-1.42-1.42zM1 14h3v2H1zM20 14h3v2h-3z" />
    </svg>
  );
}

function viewIn(hash: string): View {
  const name = hash.slice(1);
  return isView(name) ? name : 'cluster';
}
