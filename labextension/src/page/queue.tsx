/** The queue in scheduling order, with the reasons for waiting; users with permission can change the order. */

import * as React from 'react';

import type { Waiting } from '../api/types';
import { EditCell, moveAmongCells } from './cell';
import type { Cluster } from './cluster';
import { ExperimentLink } from './experimentlink';
import { moveFirst, setPriority } from './actions';
import { plural, typedValue } from './fields';
import type { ClusterSnapshot } from './clusterstate';
import { personText, priorityText, whatOf } from './rows';
import type { Column } from './table';
import { Row, Table } from './table';
import { estimateText, sinceText } from './text';

const SHORT = 20; // rows shown before the user expands the list

export function Queue({ cluster, snapshot }: { cluster: Cluster; snapshot: ClusterSnapshot }): React.JSX.Element {
  const [all, setAll] = React.useState(false);
  const { queue } = snapshot;
  const shown = all ? queue : queue.slice(0, SHORT);
  const pools = new Set(snapshot.pools.map(pool => pool.name)).size > 1;
  return (
    <section className="dl-wide" aria-labelledby="dl-queue">
      <h2 id="dl-queue">
        Queue <span className="dl-count">{queue.length || ''}</span>
      </h2>
      {queue.length === 0 ? (
        <p className="dl-empty">Nobody waits: what is submitted starts at once, where there is room for it.</p>
      ) : (
        <Waits cluster={cluster} snapshot={snapshot} rows={shown} pools={pools} />
      )}
      {shown.length < queue.length && (
        <button type="button" className="dl-push" onClick={() => setAll(true)}>
          Show all {queue.length}
        </button>
      )}
    </section>
  );
}

interface Props {
  cluster: Cluster;
  snapshot: ClusterSnapshot;
  rows: readonly Waiting[];
  pools: boolean; // whether there are several pools
}

function Waits({ cluster, snapshot, rows, pools }: Props): React.JSX.Element {
  const admin = snapshot.me?.person.admin ?? false;
  const columns: Column[] = [
    { title: 'Place' },
    { title: 'Whose' },
    { title: 'Experiment' },
    { title: 'Slots', number: true },
    { title: 'Why it waits' },
    { title: 'Starts in', number: true },
    { title: 'Waits', number: true },
    { title: 'Priority', number: true, hint: 'higher goes first' },
    ...(admin ? [{ title: 'Order' }] : [])
  ];
  return (
    <Table name="Queue" columns={columns} onKeyDown={moveAmongCells}>
      {rows.map(row => (
        <Row
          key={keyOf(row)}
          columns={columns}
          mark={row.owner === snapshot.me?.person.name ? 'own' : undefined}
          cells={[
            pools ? `${row.pool} ${row.place}` : row.place,
            personText(row.owner, row.group),
            <span key="what" className="dl-long">
              <ExperimentLink number={row.experiment} text={whatOf(row)} />
            </span>,
            row.slots,
            row.wait?.reason ?? '',
            estimateText(row.wait),
            sinceText(row.queued_at, snapshot.at),
            <Priority key="priority" cluster={cluster} snapshot={snapshot} row={row} />,
            ...(admin ? [<First key="first" cluster={cluster} row={row} />] : [])
          ]}
        />
      ))}
    </Table>
  );
}

function Priority({
  cluster,
  snapshot,
  row
}: {
  cluster: Cluster;
  snapshot: ClusterSnapshot;
  row: Waiting;
}): React.JSX.Element {
  const { experiment, priority } = row;
  const person = snapshot.me?.person;
  if (experiment === null || !(person?.admin || person?.name === row.owner)) {
    return <>{priorityText(priority)}</>;
  }
  return (
    <EditCell
      name={`Priority of #${experiment}`}
      text={priorityText(priority)}
      width={4}
      save={typed => cluster.act(setPriority(row, experiment, typedValue(typed) ?? 0, person.admin))}
    />
  );
}

function First({ cluster, row }: { cluster: Cluster; row: Waiting }): React.JSX.Element | null {
  const { experiment } = row;
  if (experiment === null || row.place === 1) {
    return null;
  }
  return (
    <button
      type="button"
      className="dl-push"
      aria-label={`Move #${experiment} to the front`}
      title={`${row.slots} ${plural(row.slots, 'slot')}: ahead of everything that waits`}
      onClick={() => void cluster.try(moveFirst(row, experiment))}
    >
      To the front
    </button>
  );
}

/** Return the React key of a request, which is the same at every position, so that an edit in its row is kept. */
function keyOf({ experiment, trial, pool, place }: Waiting): string {
  return `${pool}/${experiment === null ? place : `${experiment}.${trial ?? `new/${place}`}`}`;
}
