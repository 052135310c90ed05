/** What the words are made of, as it looks in JSON: the values of `kernel_backend/model/record.py`. */

/** A number as JSON carries it: what is not finite travels as text. */
export type Num = number | 'NaN' | 'Infinity' | '-Infinity';

export type Value = boolean | number | string | null | Value[] | { [key: string]: Value };
export type Metrics = Record<string, Num>;
