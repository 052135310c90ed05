/** Audit log: changes that administrators made to other users' or shared objects. */

import * as React from 'react';

import type { Cluster } from './cluster';
import type { ClusterSnapshot } from './clusterstate';
import { entriesWith } from './rows';
import { Row, Table } from './table';
import { dayText } from './text';

const COLUMNS = [
  { title: 'When' },
  { title: 'Who' },
  { title: 'What' },
  { title: 'To' },
  { title: 'Before and after' }
];

export function Audit({ cluster, snapshot }: { cluster: Cluster; snapshot: ClusterSnapshot }): React.JSX.Element {
  const [search, setSearch] = React.useState(snapshot.auditOf);
  const entries = snapshot.audit ?? [];
  const answered = snapshot.auditOf === search;
  const found = answered ? entries : entriesWith(entries, search); // filters loaded entries until the service answers
  return (
    <section className="dl-wide" aria-labelledby="dl-audit">
      <div className="dl-bar-above">
        <h2 id="dl-audit">Audit log</h2>
        <input
          type="search"
          className="dl-input dl-find"
          aria-label="Search the log"
          placeholder="Name, act, number"
          value={search}
          onChange={event => {
            setSearch(event.target.value);
            cluster.search(event.target.value);
          }}
        />
        <span className="dl-dim" role="status">
          {search && answered ? `${entries.length}${snapshot.auditEnds ? '' : ' or more'} match` : ''}
        </span>
      </div>
      {snapshot.audit === null ? (
        <p className="dl-empty">Reading the log…</p>
      ) : entries.length === 0 && !snapshot.auditOf ? (
        <p className="dl-empty">
          Nothing yet. What administrators change (quotas, nodes, the order, experiments of others) is written here.
        </p>
      ) : (
        <Table name="Audit log" columns={COLUMNS}>
          {found.map(entry => (
            <Row
              key={entry.seq}
              columns={COLUMNS}
              cells={[dayText(entry.at), entry.who, entry.act, entry.on, entry.detail]}
            />
          ))}
        </Table>
      )}
      {entries.length > 0 && !snapshot.auditEnds && (
        <button type="button" className="dl-push" onClick={() => void cluster.older()}>
          Older
        </button>
      )}
    </section>
  );
}
