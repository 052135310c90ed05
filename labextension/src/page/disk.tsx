/** Disk usage of the user's experiments, the largest first, and the free space of the disk. */

import * as React from 'react';

import type { DiskReport } from '../api/types';
import { sentence, size } from '../model/text';
import { Bar, Row, Table } from './table';

const COLUMNS = [{ title: 'Experiment' }, { title: 'On disk', number: true }, { title: 'Of that' }];

export function Disk({ disk }: { disk: DiskReport }): React.JSX.Element {
  const largest = disk.experiments.filter(each => total(each.bytes) > 0);
  return (
    <section aria-labelledby="dl-disk">
      <h2 id="dl-disk">Your disk</h2>
      {disk.warnings.map(text => (
        <p key={text} className="dl-warning" role="alert">
          {sentence(text)}
        </p>
      ))}
      <div className="dl-tiles">
        <article className="dl-tile" aria-label="Disk">
          <h3>{size(disk.users.reduce((sum, each) => sum + total(each.bytes), 0))} of yours</h3>
          {disk.size !== null && disk.free !== null && (
            <Bar
              name="Disk in use, by all"
              part={1 - disk.free / Math.max(disk.size, 1)}
              text={`${size(disk.free)} of ${size(disk.size)} free`}
            />
          )}
        </article>
      </div>
      {largest.length > 0 && (
        <Table name="Largest experiments" columns={COLUMNS}>
          {largest.map(each => (
            <Row
              key={each.experiment}
              columns={COLUMNS}
              cells={[
                <span key="title" className="dl-long">{`#${each.experiment} ${each.name}`}</span>,
                size(total(each.bytes)),
                parts(each.bytes)
              ]}
            />
          ))}
        </Table>
      )}
    </section>
  );
}

function total(bytes: Readonly<Record<string, number>>): number {
  return Object.values(bytes).reduce((sum, each) => sum + each, 0);
}

/** Format sizes by kind, the largest first: `checkpoints 3.9 GB, artifacts 12.0 MB`. */
export function parts(bytes: Readonly<Record<string, number>>): string {
  return Object.entries(bytes)
    .sort(([, one], [, other]) => other - one)
    .map(([kind, count]) => `${kind} ${size(count)}`)
    .join(', ');
}
