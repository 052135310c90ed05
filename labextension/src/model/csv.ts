/** Read comma- or tab-separated text as rows, for display. */

const ROWS = 200;
const COLUMNS = 40;

export interface CsvTable {
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
  readonly left: string; // what is not shown: `1,200 more rows`; "" if nothing is left out
}

/** Return the first rows of a text; its first line has the names of the columns. */
export function csvTable(text: string, tabs: boolean): CsvTable {
  const all = linesOf(text, tabs ? '\t' : ',');
  const [head = [], ...rows] = all;
  const wide = Math.max(0, ...all.map(row => row.length)) - COLUMNS;
  const left = [counted(rows.length - ROWS, 'row'), counted(wide, 'column')].filter(Boolean).join(', ');
  return {
    head: head.slice(0, COLUMNS),
    rows: rows.slice(0, ROWS).map(row => row.slice(0, COLUMNS)),
    left
  };
}

function counted(count: number, word: string): string {
  return count > 0 ? `${count.toLocaleString('en')} more ${word}${count === 1 ? '' : 's'}` : '';
}

/** Split a text into lines of cells; a quoted cell may contain separators, line breaks and doubled quotes. */
function linesOf(text: string, separator: string): string[][] {
  const lines: string[][] = [];
  let line: string[] = [];
  const cell = new RegExp(`("(?:[^"]|"")*"|[^${separator}\\r\\n]*)(${separator}|\\r?\\n|\\r|$)`, 'y');
  while (cell.lastIndex < text.length) {
    const [all = '', value = '', end = ''] = cell.exec(text) ?? [];
    if (all === '') {
      break; // a quote that never ends
    }
    line.push(value.startsWith('"') ? value.slice(1, -1).replaceAll('""', '"') : value);
    if (end !== separator) {
      lines.push(line);
      line = [];
    }
  }
  return line.length ? [...lines, [...line, '']] : lines;
}
