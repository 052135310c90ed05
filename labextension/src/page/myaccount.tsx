/** The user's own data: their slot use, that of their groups, and their running and waiting trainings. */

import * as React from 'react';

import type { Account, Overview } from '../api/types';
import { ended, frontOf, stateOf } from '../model/overview';
import { num } from '../model/curves';
import {
  duration,
  elapsed,
  epochText,
  knownEpochs,
  resultText,
  size,
  slotsText,
  standingText,
  titleText,
  trialsText
} from '../model/text';
import { heldText, partOf, windowText } from './fields';
import type { ClusterSnapshot } from './clusterstate';
import { ExperimentLink } from './experimentlink';
import { Slots } from './slots';
import { Bar, Row, Table } from './table';
import { estimateText } from './text';

export function MyAccount({ snapshot }: { snapshot: ClusterSnapshot }): React.JSX.Element {
  const { me, experiments, at } = snapshot;
  const mine = experiments.filter(each => each.experiment.owner === me?.person.name);
  return (
    <>
      <section aria-labelledby="dl-use">
        <h2 id="dl-use">Your use</h2>
        <div className="dl-tiles">
          {me?.accounts.map(account => (
            <Tile key={`${account.kind}/${account.name}`} account={account} />
          ))}
        </div>
        {me?.person.submits === false && (
          <p className="dl-empty">You may look. To have something trained, ask an administrator for that right.</p>
        )}
      </section>
      <section aria-labelledby="dl-mine">
        <h2 id="dl-mine">Your experiments</h2>
        {mine.length > 0 ? <Experiments experiments={mine} now={at} /> : <None />}
      </section>
    </>
  );
}

function None(): React.JSX.Element {
  return (
    <p className="dl-empty">
      Nothing of yours runs or waits. Begin a notebook cell with <code>%%dlsubmit --slots 2</code>, and it appears here.
    </p>
  );
}

function Tile({ account }: { account: Account }): React.JSX.Element {
  const { quota, use } = account;
  const title = account.kind === 'user' ? 'You' : `Group ${account.name}`;
  const hours = quota.slot_hours;
  return (
    <article className="dl-tile" aria-label={title}>
      <h3>{title}</h3>
      <Slots account={account} name={`Slots of ${title}`} text={`${heldText(account)} in use`} />
      {hours && (
        <Bar
          name={`Slot-hours of ${title}`}
          part={partOf(use.window ?? 0, 3600 * hours.hours)}
          text={windowText(account)}
        />
      )}
      <p className="dl-dim">{terms(account)}</p>
    </article>
  );
}

/** Format a quota: `2 guaranteed, at most 4 a trial`; unlimited fields are left out. */
function terms({ quota }: Account): string {
  const said = [
    quota.guarantee > 0 ? `${quota.guarantee} guaranteed` : 'no guarantee',
    quota.limit === null ? 'no limit' : '',
    quota.max_slots_per_trial === null ? '' : `at most ${quota.max_slots_per_trial} a trial`,
    quota.weight === 1 ? '' : `weight ${quota.weight}`,
    quota.storage == null ? '' : `at most ${size(num(quota.storage))} on disk`,
    quota.priority > 0 ? `priority up to ${quota.priority}` : ''
  ];
  return said.filter(Boolean).join(', ');
}

const COLUMNS = [
  { title: 'Experiment' },
  { title: 'State' },
  { title: 'Slots', number: true },
  { title: 'Progress' },
  { title: 'Time', number: true }
];

function Experiments({ experiments, now }: { experiments: readonly Overview[]; now: number }): React.JSX.Element {
  return (
    <Table name="Your experiments" columns={COLUMNS}>
      {experiments.map(overview => (
        <Row
          key={overview.experiment.number}
          columns={COLUMNS}
          cells={[
            <span key="title" className="dl-long">
              <ExperimentLink number={overview.experiment.number} text={titleText(overview)} />
            </span>,
            <State key="state" overview={overview} />,
            slotsText(overview),
            progress(overview),
            duration(elapsed(overview, now))
          ]}
        />
      ))}
    </Table>
  );
}

function State({ overview }: { overview: Overview }): React.JSX.Element {
  const state = stateOf(overview);
  const { wait } = overview;
  return (
    <>
      <span className="dl-chip" data-state={state}>
        {standingText(overview)}
      </span>
      {wait && (
        <span className="dl-reason">
          {wait.reason}
          {wait.estimate !== null && `; ${estimateText(wait)}`}
        </span>
      )}
    </>
  );
}

function progress(overview: Overview): string {
  const trial = frontOf(overview);
  const { config } = overview.experiment;
  if (config.search) {
    return [ended(overview) ? trialsText(overview) : '', resultText(overview)].join('  ').trim() || '\u2013';
  }
  return trial && trial.step > 0
    ? `${epochText(trial.epoch, knownEpochs(config))}  ${resultText(overview)}`.trim()
    : '–';
}
