/** The words of `kernel_backend/model/sharing.py` as they look in JSON. */

import type { Wait } from './overview';
import type { Person } from './people';
import type { Quota, Use } from './quotas';
import type { Value } from './record';
import type { Server } from './servers';

export interface Account {
  kind: 'user' | 'group';
  name: string;
  quota: Quota;
  given: Quota | null;
  changed: Record<string, Value>;
  use: Use;
  members: string[];
  warnings: string[];
}

export interface Self {
  person: Person;
  accounts: Account[];
  servers: Server[];
}

export interface UseOverTime {
  at: number[];
  held: number[];
  quota: Quota;
}

export interface Waiting {
  pool: string;
  place: number;
  slots: number;
  queued_at: number;
  priority: number;
  owner: string;
  group: string;
  experiment: number | null;
  trial: number | null;
  name: string | null;
  wait: Wait | null;
  by_admin: boolean;
}

export interface Pool {
  name: string;
  engine: string;
  kinds: string[];
  slots: number;
  used: number;
  waiting: number;
}

export interface Deed {
  seq: number;
  at: number;
  who: string;
  act: string;
  on: string;
  detail: string;
}
