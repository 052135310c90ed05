/** Last lines of the log in a collapsible element; it is requested only while it is visible. */

import type { LogChunk } from '../api/types';
import { ended } from '../model/overview';
import { runsAsItIs, size } from '../model/text';
import { messageOf } from '../service/source';
import type { Look, Watch } from '../service/watch';
import { h, setText, show } from './dom';
import { Sight } from './frame';
import { emptyText, LogText } from './logtext';

const EVERY_MS = 2000;
const TAIL = 65_536; // bytes
const NEAR = 24; // pixels from the end that count as the end

export class Log {
  private readonly _about = h('p', { class: 'dl-dim' });
  // Not announced by screen readers while it grows: it would be too much.
  private readonly _box = h('div', {
    class: 'dl-log-text',
    role: 'log',
    'aria-live': 'off',
    'aria-label': 'Log',
    tabindex: 0
  });
  private readonly _name = h('summary', {}, 'Log');
  private readonly _fold: HTMLDetailsElement;
  private readonly _sight: Sight;
  private readonly _log = new LogText();
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _chunk: LogChunk | null = null; // newest chunk
  private _whose = ''; // attempt that should be shown
  private _read = ''; // attempt that is shown
  private _trial: number | undefined;
  private _requesting = false;
  private _disposed = false;
  private _over = false;
  private _unfolded = false; // it was opened automatically, which happens once

  constructor(private readonly _watch: Pick<Watch, 'logs'>) {
    const opened = (): void => this._again(0);
    this._fold = h('details', { class: 'dl-fold dl-log', ontoggle: opened }, this._name, this._about, this._box);
    this._sight = new Sight(this._fold, opened);
    document.addEventListener('visibilitychange', this._shown);
  }

  get root(): HTMLElement {
    return this._fold;
  }

  /** Draw the log; `chosen` is the selected trial of a search. */
  update(look: Look, chosen: number | null = null): void {
    const overview = look.overview;
    const index = chosen ?? overview?.trials[0]?.index;
    const trial = overview?.trials.find(each => each.index === index); // paused trials may not be listed
    this._trial = index;
    setText(this._name, chosen === null ? 'Log' : `Log of ${look.number}.${chosen}`);
    show(this._fold, index !== undefined && trial?.attempt !== 0 && look.connection !== 'foreign');
    this._over = overview !== null && ended(overview);
    if (!this._unfolded && overview && runsAsItIs(overview.experiment.config)) {
      this._unfolded = true;
      this._fold.open = true; // output is the only result of such code
    }
    if (this._over && this._chunk) {
      this._write();
    }
    const whose = `${index ?? ''} ${trial?.attempt ?? ''} ${trial?.failure?.rank ?? ''}`;
    if (whose !== this._whose) {
      this._whose = whose;
      this._again(0);
    }
  }

  dispose(): void {
    this._disposed = true;
    clearTimeout(this._timer);
    this._sight.dispose();
    document.removeEventListener('visibilitychange', this._shown);
  }

  private readonly _shown = (): void => this._again(0);

  private _again(after: number): void {
    clearTimeout(this._timer);
    const wanted = this._fold.open && this._sight.visible && !document.hidden && !this._disposed && !this._done();
    if (wanted && !this._requesting) {
      this._timer = setTimeout(() => void this._ask(), after);
    }
  }

  /** Return whether the log is read completely and cannot grow. */
  private _done(): boolean {
    const chunk = this._chunk;
    return this._over && this._read === this._whose && chunk !== null && chunk.ended && chunk.offset >= chunk.size;
  }

  private async _ask(): Promise<void> {
    this._requesting = true;
    const whose = this._whose;
    const same = this._chunk !== null && this._read === whose;
    const trial = this._trial ?? 1;
    try {
      const part = same && this._chunk ? next(this._chunk) : { tail: TAIL };
      const chunk = await this._watch.logs(trial > 1 ? { ...part, trial } : part);
      this._take(chunk, same);
      this._read = whose;
    } catch (error) {
      setText(this._about, messageOf(error));
    }
    this._requesting = false;
    const more = this._chunk !== null && this._chunk.offset < this._chunk.size && this._chunk.text !== '';
    this._again(more || this._whose !== whose ? 50 : EVERY_MS);
  }

  private _take(chunk: LogChunk, goesOn: boolean): void {
    if (!goesOn) {
      this._log.clear();
    }
    this._chunk = chunk;
    setText(this._about, `rank ${chunk.rank}, attempt ${chunk.attempt} \u00b7 ${size(chunk.size)}`);
    if (chunk.text !== '' || !goesOn) {
      this._log.append(chunk.text);
      this._write();
    }
  }

  private _write(): void {
    const box = this._box;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
    setText(box, this._log.text || emptyText(this._over));
    if (atEnd) {
      box.scrollTop = box.scrollHeight;
    }
  }
}

function next(chunk: LogChunk): { offset: number; attempt: number; rank: number } {
  return { offset: chunk.offset, attempt: chunk.attempt, rank: chunk.rank };
}
