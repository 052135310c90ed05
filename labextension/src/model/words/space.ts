/** The words of `kernel_backend/model/space.py` as they look in JSON. */

import type { Value } from './record';

export interface Range {
  type: 'range';
  low: number;
  high: number;
  whole: boolean;
  scale: 'linear' | 'log' | 'log2';
  count: number | null;
}

export interface Choices {
  type: 'choices';
  values: Value[];
}

export interface When {
  name: string;
  values: Value[];
}

export interface Parameter {
  name: string;
  domain: Range | Choices;
  when: When | null;
  each: string | null;
}

export interface Space {
  parameters: Parameter[];
}
