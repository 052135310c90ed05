/** Log as a terminal shows it: without colours, with progress bars in one line, limited to the newest lines. */

export const LINES = 2000;
const WIDE = 2000; // characters to which a line is cut
const OPEN = 4 * WIDE; // limit for an incomplete line, including control sequences

// eslint-disable-next-line no-control-regex -- these characters are what is looked for
const ESCAPES = /\u001b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
// eslint-disable-next-line no-control-regex -- as above
const UNFINISHED = /\u001b(?:\[[0-9;:?]*[ -/]*|\][^\u0007\u001b]*)?$/;

export class LogText {
  private _lines: string[] = [];
  private _open = ''; // the incomplete last line, unchanged

  /** Append text, which may begin and end anywhere. */
  append(text: string): void {
    const all = (this._open + text).split('\n');
    this._open = withoutPast(all.pop() ?? '').slice(0, OPEN);
    this._lines = [...this._lines, ...all.slice(-LINES).map(shown)].slice(-LINES);
  }

  clear(): void {
    this._lines = [];
    this._open = '';
  }

  /** Text to display. */
  get text(): string {
    return [...this._lines, shown(this._open)].slice(-LINES).join('\n');
  }
}

/** Return a line without control sequences, with text before a carriage return overwritten by what follows. */
function shown(line: string): string {
  const plain = line.replace(ESCAPES, '').replace(UNFINISHED, '').replace(/\r+$/, '');
  const last = plain.slice(plain.lastIndexOf('\r') + 1);
  return last.length > WIDE ? `${last.slice(0, WIDE)} \u2026` : last;
}

/** Return a line without overwritten text, so that a progress bar with a million updates takes no memory. */
function withoutPast(line: string): string {
  const last = line.lastIndexOf('\r', line.length - 2);
  return line.slice(last + 1);
}

/** Return the text shown for an empty log; `over` means that no lines will follow. */
export function emptyText(over: boolean): string {
  return over ? 'nothing was written' : 'nothing was written yet';
}
