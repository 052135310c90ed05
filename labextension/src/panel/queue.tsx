/** The queue and the user's quotas, below a heading that opens them. */

import * as React from 'react';

import { ownWaits, quotaUses, queueText } from './waiting';
import type { Queue, QuotaUse } from './waiting';

interface Props {
  queue: Queue | null; // null until the service has answered
  shown: boolean;
  show: (shown: boolean) => void;
  open: (number: number) => void;
}

export function QueuePart({ queue, shown, show, open }: Props): React.JSX.Element {
  return (
    <details className="dl-queue" open={shown} onToggle={event => show(event.currentTarget.open)}>
      <summary>Queue and quota</summary>
      {shown && queue && (
        <>
          {quotaUses(queue).map(use => (
            <Quota key={`${use.name} ${use.text}`} use={use} />
          ))}
          <p className="dl-queue-text">{queueText(queue)}</p>
          <ol className="dl-waits" aria-label="Your requests">
            {ownWaits(queue).map(({ experiment, text, reason }) => (
              <li key={text}>
                <button type="button" className="dl-request" onClick={() => open(experiment)}>
                  {text}
                </button>
                {reason && <span className="dl-wait-reason">{reason}</span>}
              </li>
            ))}
          </ol>
        </>
      )}
    </details>
  );
}

function Quota({ use }: { use: QuotaUse }): React.JSX.Element {
  const { name, text, part } = use;
  return (
    <div className="dl-meter">
      <span className="dl-meter-text">
        <span className="dl-meter-name">{name}:</span> {text}
      </span>
      {part !== null && (
        <div
          className="dl-meter-bar"
          role="meter"
          aria-label={`Quota of ${name}`}
          aria-valuemin={0}
          aria-valuemax={100}
          aria-valuenow={Math.round(100 * part)}
          aria-valuetext={text}
        >
          <div style={{ width: `${100 * part}%` }} />
        </div>
      )}
    </div>
  );
}
