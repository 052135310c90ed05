/** Notices that the panel shows if it has no list. */

import * as React from 'react';

import { sentence } from '../model/text';
import type { ServiceError } from '../service/source';

const SERVE = 'daylight serve';
const NO_SERVICE: readonly number[] = [502, 503, 504];

export function Beginning(): React.JSX.Element {
  return (
    <div className="dl-notice">
      <p className="dl-notice-title">No experiments yet</p>
      <p>Load Daylight in a notebook, then begin a cell that defines a training with the second line:</p>
      <pre>%load_ext daylight</pre>
      <pre>%%dlsubmit --slots 2</pre>
      <p>The cell returns at once; the experiment appears here and goes on without the notebook.</p>
    </div>
  );
}

export function Nothing({ all }: { all: () => void }): React.JSX.Element {
  return (
    <div className="dl-notice">
      <p className="dl-notice-title">Nothing matches</p>
      <button type="button" className="dl-plain-button" onClick={all}>
        Show all
      </button>
    </div>
  );
}

export function Warnings({ texts }: { texts: readonly string[] }): React.JSX.Element | null {
  if (texts.length === 0) {
    return null;
  }
  return (
    <div className="dl-alert" role="status">
      {texts.map(text => (
        <p key={text}>{sentence(text)}</p>
      ))}
    </div>
  );
}

export function LoadError({ error, again }: { error: ServiceError; again: () => void }): React.JSX.Element {
  const hint = NO_SERVICE.includes(error.status) && !error.message.includes(SERVE);
  return (
    <div className="dl-alert">
      <div role="alert">
        <p>{sentence(error.message)}</p>
        {hint && (
          <p>
            To start the service in a terminal: <code>{SERVE}</code>
          </p>
        )}
      </div>
      <button type="button" className="dl-plain-button" onClick={again}>
        Try again
      </button>
    </div>
  );
}
