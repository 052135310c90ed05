/** The whole page: its header, the current view, and a notice of the last action. */

import * as React from 'react';

import { Accounts } from './accounts';
import { Audit } from './audit';
import type { Cluster } from './cluster';
import { isView, type ClusterSnapshot, type View, VIEWS } from './clusterstate';
import { Disk } from './disk';
import type { Links } from './links';
import { MyAccount } from './myaccount';
import { Nodes, Pools } from './nodes';
import { Queue } from './queue';
import { Spent } from './spent';
import { Notice, StaleNotice } from './messages';

const TITLES: Record<View, string> = { cluster: 'Cluster', accounts: 'Users and groups', audit: 'Audit log' };

export function App({ cluster, links }: { cluster: Cluster; links: Links }): React.JSX.Element {
  const snapshot = React.useSyncExternalStore(cluster.subscribe, () => cluster.snapshot);
  const done = React.useSyncExternalStore(cluster.subscribe, () => cluster.done);
  const [view, setView] = React.useState<View>(viewIn(location.hash));
  React.useEffect(() => {
    const moved = (): void => setView(viewIn(location.hash));
    addEventListener('hashchange', moved);
    return () => removeEventListener('hashchange', moved);
  }, []);
  const admin = snapshot.me?.person.admin ?? false;
  const shown = admin || snapshot.me === null ? view : 'cluster';
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
      <Head snapshot={snapshot} view={shown} admin={admin} links={links} />
      {snapshot.error && <StaleNotice error={snapshot.error} at={snapshot.at} again={() => cluster.refresh()} />}
      <main className="dl-page-body" data-stale={snapshot.error !== null}>
        {snapshot.me ? <Body cluster={cluster} snapshot={snapshot} view={shown} /> : <Beginning snapshot={snapshot} />}
      </main>
      <Notice done={done} undo={() => void cluster.undo()} dismiss={() => cluster.dismiss()} />
    </div>
  );
}

function Body({
  cluster,
  snapshot,
  view
}: {
  cluster: Cluster;
  snapshot: ClusterSnapshot;
  view: View;
}): React.JSX.Element {
  switch (view) {
    case 'cluster': {
      const admin = snapshot.me?.person.admin ?? false; // looks after the cluster first
      const own = (
        <>
          <MyAccount snapshot={snapshot} />
          {snapshot.disk && <Disk disk={snapshot.disk} />}
        </>
      );
      return (
        <>
          {!admin && own}
          <Queue cluster={cluster} snapshot={snapshot} />
          <Nodes cluster={cluster} snapshot={snapshot} />
          <Pools snapshot={snapshot} />
          {admin && own}
          <Spent cluster={cluster} admin={admin} />
        </>
      );
    }
    case 'accounts':
      return <Accounts cluster={cluster} snapshot={snapshot} />;
    case 'audit':
      return <Audit cluster={cluster} snapshot={snapshot} />;
  }
}

function Beginning({ snapshot }: { snapshot: ClusterSnapshot }): React.JSX.Element | null {
  return snapshot.error ? null : <p className="dl-empty">Looking at the cluster…</p>;
}

interface HeadProps {
  snapshot: ClusterSnapshot;
  view: View;
  admin: boolean;
  links: Links;
}

function Head({ snapshot, view, admin, links }: HeadProps): React.JSX.Element {
  const person = snapshot.me?.person;
  return (
    <header className="dl-page-head">
      <h1>
        <Sun />
        Daylight
      </h1>
      <nav aria-label="Views">
        {VIEWS.filter(name => admin || name === 'cluster').map(name => (
          <React.Fragment key={name}>
            <a href={`#${name}`} aria-current={name === view ? 'page' : undefined}>
              {TITLES[name]}
            </a>
            {name === 'cluster' && <a href="models">Models</a>}
          </React.Fragment>
        ))}
      </nav>
      {Object.keys(links).length > 0 && (
        <nav aria-label="Elsewhere">
          {Object.entries(links).map(([text, href]) => (
            <a key={text} href={href}>
              {text}
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
