/** Notices of the page: the last action, which can be undone, and why the numbers are old. */

import * as React from 'react';

import { sentence } from '../model/text';
import type { ServiceError } from '../service/source';
import type { Done } from './cluster';
import { clockText } from './text';

interface NoticeProps {
  done: Done | null;
  undo: () => void;
  dismiss: () => void;
}

/** Notice of the last action; it stays until the next one, so that slow readers miss nothing. */
export function Notice({ done, undo, dismiss }: NoticeProps): React.JSX.Element {
  return (
    <div className="dl-said-place">
      <div role="status" aria-live="polite" className="dl-said-text" data-wrong={done?.wrong ?? false}>
        {done?.text}
      </div>
      {done && (
        <div className="dl-said-buttons">
          {done.undo && (
            <button type="button" className="dl-push" title="Ctrl+Z" onClick={undo}>
              Undo
            </button>
          )}
          <button type="button" className="dl-push dl-plain" aria-label="Dismiss" onClick={dismiss}>
            ×
          </button>
        </div>
      )}
    </div>
  );
}

interface StaleProps {
  error: ServiceError;
  at: number;
  again: () => void;
}

/** Notice that says why the numbers are not updated, and how old they are. */
export function StaleNotice({ error, at, again }: StaleProps): React.JSX.Element {
  const loggedOut = error.status === 401;
  return (
    <div className="dl-away">
      <div role="alert">
        <p>{sentence(error.message)}</p>
        {at > 0 && <p>These numbers are those of {clockText(at)}.</p>}
      </div>
      <button type="button" className="dl-push" onClick={loggedOut ? () => location.reload() : again}>
        {loggedOut ? 'Reload' : 'Try again'}
      </button>
    </div>
  );
}
