/** Columns of the table of trials, and the note on trials that it does not show. */

import type { Metric, SearchStatus, TrialRow } from '../../api/types';
import { num } from '../../model/curves';
import { duration, number, trialWord, valueText } from '../../model/text';
import type { Column, Direction } from '../sortedtable';

/** Return the columns: those of the trial, then one per hyperparameter. */
export function columnsOf(status: SearchStatus): Column<TrialRow>[] {
  const { metric, unit, units, number: own } = status;
  const params = status.params.map(name => ({
    name,
    head: name,
    numeric: status.trials.every(row => row.params[name] === undefined || typeof row.params[name] === 'number'),
    cell: (row: TrialRow) => (row.params[name] === undefined ? '' : valueText(row.params[name]))
  }));
  return [
    { name: 'trial', head: 'trial', numeric: false, cell: row => `${own}.${row.trial}` },
    { name: 'state', head: 'state', numeric: false, cell: row => stateText(row, status) },
    { name: 'unit', head: unit, numeric: true, cell: row => `${row.unit}/${units}` },
    {
      name: 'best',
      head: `best ${metric.name}`,
      numeric: true,
      cell: row => (row.best === null ? '' : number(row.best))
    },
    { name: 'value', head: 'newest', numeric: true, cell: row => (row.value === null ? '' : number(row.value)) },
    ...params,
    { name: 'seconds', head: 'slot time', numeric: true, cell: row => (row.seconds > 0 ? duration(row.seconds) : '') }
  ];
}

/**
 * Return whether the values of a column rise or fall from row to row when the table is sorted by `sort`; null for other
 * columns. By `best` and `value`, the better values come first.
 */
export function directionOf(name: string, sort: string, metric: Metric): Direction | null {
  if (sort.replace(/^-/, '') !== name) {
    return null;
  }
  const falls = metric.mode === 'max' && ['best', 'value'].includes(name);
  return sort.startsWith('-') === falls ? 'ascending' : 'descending';
}

function stateText(row: TrialRow, { over, unit }: SearchStatus): string {
  const word = trialWord(row.state, over);
  if (row.failure !== null) {
    return `${word}: ${row.failure}`;
  }
  if (!row.diverged && (row.value === null || Number.isFinite(num(row.value)))) {
    return word;
  }
  return `${word}, diverged` + (row.best_unit === null ? '' : ` after ${unit} ${row.best_unit}`);
}

/**
 * Return a sentence on the trials that the table does not show; '' if it shows all.
 *
 * Of `total` trials, `loaded` are on the page, `through` of them lie within the user's selection, and `shown` are rows.
 */
export function noteText(shown: number, through: number, loaded: number, total: number): string {
  if (through < loaded) {
    return (
      `${through} of ${loaded} trials lie within what was chosen` + (shown < through ? `; ${shown} are shown` : '')
    );
  }
  return shown < total ? `${shown} of ${total} trials are shown; job.trials() has them all` : '';
}
