/** Bar of the slots that an account holds, relative to its limit; its guarantee is a mark on the bar. */

import * as React from 'react';

import type { Account } from '../api/types';
import { partOf } from './fields';
import { Bar } from './table';

export function Slots({ account, name, text }: { account: Account; name: string; text: string }): React.JSX.Element {
  const { limit, guarantee } = account.quota;
  if (limit === null) {
    return <span className="dl-use-text">{text}</span>; // without a limit there is no fraction
  }
  return (
    <Bar
      name={name}
      part={partOf(account.use.held, limit)}
      mark={guarantee > 0 && limit > 0 ? guarantee / limit : undefined}
      text={text}
    />
  );
}
