/** Who has changed what: the log of what administrators did to what is not theirs. */

import * as React from 'react';

import type { Cluster } from './cluster';
import type { ClusterSnapshot } from './clusterstate';
import { deedsWith } from './rows';
import { Row, Table } from './table';
import { dayText } from './text';

const COLUMNS = [
  { title: 'When' },
  { title: 'Who' },
  { title: 'What' },
  { title: 'To' },
  { title: 'Before and after' }
];

export function Audit({ cluster, known }: { cluster: Cluster; known: ClusterSnapshot }): React.JSX.Element {
  const [search, setSearch] = React.useState(known.auditOf);
  const deeds = known.audit ?? [];
  const answered = known.auditOf === search;
  const found = answered ? deeds : deedsWith(deeds, search); // what is there already, until the service has answered
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
          {search && answered ? `${deeds.length}${known.auditEnds ? '' : ' or more'} match` : ''}
        </span>
      </div>
      {known.audit === null ? (
        <p className="dl-empty">Reading the log…</p>
      ) : deeds.length === 0 && !known.auditOf ? (
        <p className="dl-empty">
          Nothing yet. What administrators change (quotas, nodes, the order, experiments of others) is written here.
        </p>
      ) : (
        <Table name="Audit log" columns={COLUMNS}>
          {found.map(deed => (
            <Row
              key={deed.seq}
              columns={COLUMNS}
              cells={[dayText(deed.at), deed.who, deed.act, deed.on, deed.detail]}
            />
          ))}
        </Table>
      )}
      {deeds.length > 0 && !known.auditEnds && (
        <button type="button" className="dl-push" onClick={() => void cluster.older()}>
          Older
        </button>
      )}
    </section>
  );
}
