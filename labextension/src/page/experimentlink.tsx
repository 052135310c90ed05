/** Link to the page of an experiment; plain text where the experiment is hidden from this user. */

import * as React from 'react';

import { pageOf } from './links';

export function ExperimentLink({ number, text }: { number: number | null; text: string }): React.JSX.Element {
  return number === null ? (
    <>{text}</>
  ) : (
    <a className="dl-door" href={pageOf(number)}>
      {text}
    </a>
  );
}
