/** Filter of the table of experiments, as a user types it: `lr < 0.01 tag:baseline digits`. No DOM. */

import type { ExperimentRow, Value } from '../api/types';
import { valueText } from '../model/text';
import { STATES } from '../panel/list';
import { valueOf } from './columns';

const NAMED = 6; // names in a sentence
const SECONDS: Readonly<Record<string, number>> = { s: 1, min: 60, h: 3600, d: 86400 };
const TERM = /([^\s"<>=!]+)\s*(<=|>=|!=|=|<|>)\s*("[^"]*"|[^\s"<>=!]*)|(\w+):("[^"]*"|\S*)|"[^"]*"|\S+/g;

export interface Filter {
  readonly matches: (row: ExperimentRow) => boolean; // terms that were not understood let all pass
  readonly problem: string; // sentence about what was not understood; ''
}

type Test = (row: ExperimentRow) => boolean;

/** Return the filter in a text; `names` are hyperparameters and metrics that can be compared. */
export function filterIn(text: string, names: readonly string[]): Filter {
  const tests: Test[] = [];
  const problems: string[] = [];
  for (const [term, name = '', sign = '', value = '', key = '', word = ''] of text.matchAll(TERM)) {
    const test = sign ? compared(name, sign, bare(value), names) : key ? keyed(key, bare(word)) : worded(bare(term));
    (typeof test === 'string' ? problems : tests).push(test as string & Test);
  }
  return { matches: row => tests.every(test => test(row)), problem: problems.join(' ') };
}

/** Return the test of `name sign value`, or a sentence on what is wrong with it. */
function compared(name: string, sign: string, text: string, names: readonly string[]): Test | string {
  const known = [...names, 'time', 'number'];
  if (!known.includes(name)) {
    const there = known.slice(0, NAMED).join(', ');
    return `No hyperparameter and no metric is called ${name}: there are ${there}${known.length > NAMED ? ' and others' : ''}.`;
  }
  if (text === '') {
    return `${name} ${sign} lacks a value, such as 0.01.`;
  }
  const wanted = numberIn(text, name);
  if (Number.isNaN(wanted) && !sign.endsWith('=')) {
    return `${text} is no number: ${name} ${sign} takes one.`;
  }
  return row => holds(valueOf(row, name), sign, wanted, text);
}

function numberIn(text: string, name: string): number {
  const [, digits = text, unit = ''] = (name === 'time' && /^([\d.]+)(s|min|h|d)$/.exec(text)) || [];
  return digits === '' ? NaN : Number(digits) * (SECONDS[unit] ?? 1);
}

function holds(value: Value, sign: string, wanted: number, text: string): boolean {
  if (value === null) {
    return false;
  }
  const equal = typeof value === 'number' ? value === wanted : valueText(value) === text;
  switch (sign) {
    case '=':
      return equal;
    case '!=':
      return !equal;
    case '<=':
    case '>=':
      if (equal) {
        return true;
      }
  }
  return typeof value === 'number' && (sign.startsWith('<') ? value < wanted : value > wanted);
}

function keyed(key: string, word: string): Test | string {
  const small = word.toLowerCase();
  switch (key) {
    case 'tag':
      return row => row.tags.some(tag => tag.toLowerCase() === small);
    case 'state':
      return STATES.some(state => state.startsWith(small))
        ? row => row.state.startsWith(small)
        : `No state is called ${word}: there are ${STATES.slice(0, -1).join(', ')}.`;
    case 'notebook':
      return row => (row.notebook ?? '').toLowerCase().includes(small);
    default:
      return `Before a colon stands tag, state or notebook, not ${key}.`;
  }
}

function worded(word: string): Test | string {
  if (/^[<>=!]/.test(word)) {
    return `${word} has no name before it: write for example lr ${word} 0.01.`;
  }
  const small = word.toLowerCase();
  const number = /^#\d+$/.test(word) ? Number(word.slice(1)) : NaN;
  return row => row.number === number || row.name.toLowerCase().includes(small);
}

function bare(text: string): string {
  return text.replaceAll('"', '');
}
