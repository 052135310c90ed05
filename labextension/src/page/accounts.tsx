/** Users and groups, for administrators: quotas that can be edited in place. */

import * as React from 'react';

import type { Account } from '../api/types';
import { EditCell, moveAmongCells } from './cell';
import { UseChart } from './chart';
import type { Cluster } from './cluster';
import { clearQuota, nameOf, setQuota } from './actions';
import { FIELDS, fieldText, givenText, heldText, isChanged, typedValue, windowText } from './fields';
import type { ClusterSnapshot } from './clusterstate';
import { ALL, type Look, type Order, pageOf } from './rows';
import { Slots } from './slots';
import { type Column, Row, Table } from './table';

const SORTED: Record<string, Order> = { Name: 'name', Use: 'held', Limit: 'limit', Guarantee: 'guarantee' };

export function Accounts({ cluster, snapshot }: { cluster: Cluster; snapshot: ClusterSnapshot }): React.JSX.Element {
  const [look, setLook] = React.useState<Look>(ALL);
  const [chosen, setChosen] = React.useState<Pick<Account, 'kind' | 'name'> | null>(null);
  const narrow = (change: Partial<Look>): void => setLook({ ...look, page: 0, ...change });
  const page = React.useMemo(() => pageOf(snapshot.accounts ?? [], look), [snapshot.accounts, look]);
  if (snapshot.accounts === null) {
    return <p className="dl-empty">Reading users and groups…</p>;
  }
  if (snapshot.accounts.length === 0) {
    return (
      <p className="dl-empty">
        Nobody yet. Users appear when they first come, groups when the hub names them: see load_groups in the hub's
        configuration.
      </p>
    );
  }
  const columns = columnsFor(look, narrow);
  return (
    <>
      {chosen && <UseChart key={nameOf(chosen)} cluster={cluster} account={chosen} close={() => setChosen(null)} />}
      <section className="dl-wide" aria-labelledby="dl-accounts">
        <div className="dl-bar-above">
          <h2 id="dl-accounts">Users and groups</h2>
          <Narrowing look={look} narrow={narrow} />
        </div>
        {page.of === 0 ? (
          <p className="dl-empty">
            Nothing matches.{' '}
            <button type="button" className="dl-push" onClick={() => setLook(ALL)}>
              Show all
            </button>
          </p>
        ) : (
          <Table name="Users and groups" columns={columns} onKeyDown={moveAmongCells}>
            {page.rows.map(account => (
              <Row
                key={nameOf(account)}
                columns={columns}
                mark={account.kind}
                cells={cellsFor(cluster, account, () => setChosen(account))}
              />
            ))}
          </Table>
        )}
        <nav className="dl-pager" aria-label="Pages">
          <button
            type="button"
            className="dl-push"
            disabled={page.page === 0}
            onClick={() => narrow({ page: page.page - 1 })}
          >
            Previous
          </button>
          <span role="status">
            {page.first}–{page.first + page.rows.length - Number(page.of > 0)} of {page.of}
          </span>
          <button
            type="button"
            className="dl-push"
            disabled={page.page + 1 >= page.pages}
            onClick={() => narrow({ page: page.page + 1 })}
          >
            Next
          </button>
        </nav>
      </section>
    </>
  );
}

function columnsFor(look: Look, narrow: (change: Partial<Look>) => void): Column[] {
  const sorted = (column: Column): Column => {
    const order = SORTED[column.title];
    if (order === undefined) {
      return column;
    }
    const now = look.order !== order ? 'none' : look.down ? 'descending' : 'ascending';
    // Numbers are sorted descending at first, names ascending.
    const turn = (): void => narrow({ order, down: look.order === order ? !look.down : order !== 'name' });
    return { ...column, sort: { now, turn } };
  };
  const fields = FIELDS.map(({ title, hint }) => ({ title, hint, number: true }));
  return [{ title: 'Name' }, { title: 'Use' }, ...fields, { title: 'Changed here' }].map(sorted);
}

function cellsFor(cluster: Cluster, account: Account, choose: () => void): React.ReactNode[] {
  const who = nameOf(account);
  const numbers = FIELDS.map(({ name, title, width }) => {
    const changed = isChanged(account, name);
    return (
      <EditCell
        key={name}
        name={`${title} of ${who}`}
        text={fieldText(account.quota, name)}
        width={width}
        empty="the hub's"
        changed={changed}
        {...(changed ? { note: `hub: ${givenText(account, name)}` } : {})}
        save={typed => cluster.act(setQuota(account, name, typedValue(typed)))}
      />
    );
  });
  const changed = Object.keys(account.changed).length > 0;
  return [
    <React.Fragment key="name">
      <button type="button" className="dl-link" title={`Use of ${who} over time`} onClick={choose}>
        {account.name}
      </button>
      <span className="dl-dim">{about(account)}</span>
      {account.warnings.map(warning => (
        <span key={warning} className="dl-warning">
          {warning}
        </span>
      ))}
    </React.Fragment>,
    <Slots
      key="use"
      account={account}
      name={`Slots of ${who}`}
      text={[heldText(account), windowText(account)].filter(Boolean).join('; ')}
    />,
    ...numbers,
    changed && (
      <button
        key="back"
        type="button"
        className="dl-push"
        aria-label={`Reset ${who} to the hub's numbers`}
        onClick={() => void cluster.try(clearQuota(account))}
      >
        Reset
      </button>
    )
  ];
}

/** Describe an account: `group of 12`, `in vision, speech`. */
function about({ kind, members }: Account): string {
  if (kind === 'group') {
    return `group of ${members.length}`;
  }
  return members.length ? `in ${members.join(', ')}` : '';
}

function Narrowing({ look, narrow }: { look: Look; narrow: (change: Partial<Look>) => void }): React.JSX.Element {
  const kinds = [
    [null, 'All'],
    ['group', 'Groups'],
    ['user', 'Users']
  ] as const;
  return (
    <>
      <input
        type="search"
        className="dl-input dl-find"
        aria-label="Search users and groups"
        placeholder="Name or group"
        value={look.search}
        onChange={event => narrow({ search: event.target.value })}
      />
      <div className="dl-choices" role="group" aria-label="Show">
        {kinds.map(([kind, title]) => (
          <button
            key={title}
            type="button"
            className="dl-choice-button"
            aria-pressed={look.kind === kind}
            onClick={() => narrow({ kind })}
          >
            {title}
          </button>
        ))}
        <button
          type="button"
          className="dl-choice-button"
          aria-pressed={look.changed}
          onClick={() => narrow({ changed: !look.changed })}
        >
          Changed here
        </button>
      </div>
    </>
  );
}
