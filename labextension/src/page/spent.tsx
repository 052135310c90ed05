/** Slot-hours, how many were lost, energy and cost: by month, user, group or experiment, also as CSV. */

import * as React from 'react';

import type { SpendingReport } from '../api/types';
import { sentence } from '../model/text';
import { messageOf } from '../service/source';
import { download } from '../view/download';
import type { By, Cluster } from './cluster';
import { columnsOf, rowsOf, titleOf } from './spending';
import { Row, Table } from './table';

const AGAIN_MS = 300_000;
const CHOICES: readonly By[] = ['month', 'user', 'group', 'experiment'];

export function Spent({ cluster, admin }: { cluster: Cluster; admin: boolean }): React.JSX.Element | null {
  const [by, setBy] = React.useState<By>('month');
  const [report, setReport] = React.useState<SpendingReport | null>(null);
  const [wrong, setWrong] = React.useState('');
  React.useEffect(() => {
    let over = false;
    const look = async (): Promise<void> => {
      try {
        const found = await cluster.spending(by);
        if (!over) {
          setReport(found);
          setWrong('');
        }
      } catch (error) {
        if (!over) {
          setWrong(messageOf(error));
        }
      }
    };
    void look();
    const timer = setInterval(() => {
      if (!document.hidden) {
        void look();
      }
    }, AGAIN_MS);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, [cluster, by]);
  const save = async (): Promise<void> => {
    try {
      download(`usage-by-${by}.csv`, await cluster.spendingCsv(by));
    } catch (error) {
      setWrong(messageOf(error));
    }
  };
  if (report === null || (report.rows.length === 0 && by === 'month')) {
    return null; // nothing was trained yet
  }
  const columns = columnsOf(report);
  return (
    <section aria-labelledby="dl-spent">
      <div className="dl-bar-above">
        <h2 id="dl-spent">{admin ? 'Use and cost' : 'Your use and cost'}</h2>
        <div className="dl-choices" role="group" aria-label="By">
          {CHOICES.map(each => (
            <button
              key={each}
              type="button"
              className="dl-choice-button"
              aria-pressed={each === by}
              onClick={() => setBy(each)}
            >
              {titleOf(each)}
            </button>
          ))}
        </div>
        <button type="button" className="dl-push dl-end" onClick={() => void save()}>
          Save CSV
        </button>
      </div>
      <Table name="Use and cost" columns={columns}>
        {rowsOf(report).map(cells => (
          <Row key={cells[0]} columns={columns} cells={cells} />
        ))}
      </Table>
      {wrong && (
        <p className="dl-dim" role="status">
          {sentence(wrong)}
        </p>
      )}
    </section>
  );
}
