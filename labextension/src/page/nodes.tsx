/** Nodes and pools: their use, the gangs on them, and draining. */

import * as React from 'react';

import type { NodeUse } from '../api/types';
import { Ask } from './confirm';
import type { Cluster } from './cluster';
import { drain, trust } from './actions';
import { partOf, plural } from './fields';
import type { ClusterSnapshot } from './clusterstate';
import { ExperimentLink } from './experimentlink';
import { nodeReasons, nodeState, runText } from './rows';
import { Bar, type Column, Row, Table } from './table';

export function Nodes({ cluster, snapshot }: { cluster: Cluster; snapshot: ClusterSnapshot }): React.JSX.Element {
  const admin = snapshot.me?.person.admin ?? false;
  const [asked, setAsked] = React.useState<string | null>(null);
  const node = snapshot.nodes.find(each => each.name === asked);
  const columns: Column[] = [
    { title: 'Node' },
    { title: 'Slots in use' },
    { title: 'State' },
    { title: 'What runs there' },
    ...(admin ? [{ title: 'New work' }] : [])
  ];
  return (
    <section className="dl-wide" aria-labelledby="dl-nodes">
      <h2 id="dl-nodes">Nodes</h2>
      {snapshot.nodes.length === 0 ? (
        <p className="dl-empty">There are no nodes: look at the service's log, it says what its engine offers.</p>
      ) : (
        <Table name="Nodes" columns={columns}>
          {snapshot.nodes.map(each => (
            <Row
              key={each.name}
              columns={columns}
              cells={[
                <Name key="name" node={each} />,
                <Bar
                  key="slots"
                  name={`Slots of ${each.name}`}
                  part={partOf(each.used, each.slots)}
                  text={`${each.used} of ${each.slots} ${plural(each.slots, 'slot')}`}
                />,
                <State key="state" node={each} now={snapshot.at} />,
                <Runs key="runs" snapshot={snapshot} node={each} />,
                ...(admin ? [<Buttons key="buttons" cluster={cluster} node={each} ask={setAsked} />] : [])
              ]}
            />
          ))}
        </Table>
      )}
      {node && (
        <Ask
          title={`Drain ${node.name}?`}
          yes="Drain it"
          no="Leave it"
          answered={sure => {
            setAsked(null);
            if (sure) {
              void cluster.try(drain(node, true));
            }
          }}
        >
          <p>
            Nothing new starts there until it is undrained.{' '}
            {node.runs.length > 0 ? 'What runs there goes on to its end:' : 'Nothing runs there now.'}
          </p>
          <Runs snapshot={snapshot} node={node} />
        </Ask>
      )}
    </section>
  );
}

function Name({ node }: { node: NodeUse }): React.JSX.Element {
  return (
    <>
      {node.name} <span className="dl-dim">{[node.pool, node.kind].join(', ')}</span>
    </>
  );
}

interface ButtonsProps {
  cluster: Cluster;
  node: NodeUse;
  ask: (name: string) => void; // before it is drained
}

/** Buttons of admins: a suspect node can be trusted again, or kept out. */
function Buttons({ cluster, node, ask }: ButtonsProps): React.JSX.Element {
  const { name, drained, suspicion } = node;
  return (
    <div className="dl-pushes">
      {suspicion && !drained && (
        <button type="button" className="dl-push" onClick={() => void cluster.try(trust(node))}>
          {`Trust ${name}`}
        </button>
      )}
      <button
        type="button"
        className="dl-push"
        onClick={() => (drained ? void cluster.try(drain(node, false)) : ask(name))}
      >
        {drained ? `Undrain ${name}` : `Drain ${name}`}
      </button>
    </div>
  );
}

function State({ node, now }: { node: NodeUse; now: number }): React.JSX.Element {
  const [text, mark] = nodeState(node);
  return (
    <>
      <span className="dl-chip" data-state={mark}>
        {text}
      </span>
      {node.state && <span className="dl-dim"> {node.state}</span>}
      {nodeReasons(node, now).map(reason => (
        <div key={reason} className="dl-reason">
          {reason}
        </div>
      ))}
    </>
  );
}

function Runs({ snapshot, node }: { snapshot: ClusterSnapshot; node: NodeUse }): React.JSX.Element | null {
  if (node.runs.length === 0) {
    return null;
  }
  return (
    <ul className="dl-runs">
      {node.runs.map((run, index) => (
        <li key={index}>
          <ExperimentLink number={run.experiment} text={runText(run, snapshot.at)} />
        </li>
      ))}
    </ul>
  );
}

const POOLS: Column[] = [
  { title: 'Pool' },
  { title: 'Slots in use' },
  { title: 'Devices' },
  { title: 'Waiting', number: true }
];

export function Pools({ snapshot }: { snapshot: ClusterSnapshot }): React.JSX.Element | null {
  if (snapshot.pools.length === 0) {
    return null;
  }
  return (
    <section className="dl-wide" aria-labelledby="dl-pools">
      <h2 id="dl-pools">Pools</h2>
      <Table name="Pools" columns={POOLS}>
        {snapshot.pools.map(pool => (
          <Row
            key={pool.name}
            columns={POOLS}
            cells={[
              <React.Fragment key="name">
                {pool.name} <span className="dl-dim">{pool.problem || pool.limit || pool.engine}</span>
              </React.Fragment>,
              <Bar
                key="slots"
                name={`Slots of pool ${pool.name}`}
                part={partOf(pool.used, pool.slots)}
                text={`${pool.used} of ${pool.slots} ${plural(pool.slots, 'slot')}`}
              />,
              pool.kinds.join(', '),
              pool.waiting
            ]}
          />
        ))}
      </Table>
    </section>
  );
}
