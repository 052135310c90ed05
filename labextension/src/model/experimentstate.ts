/** State of one experiment, merged from a notebook's output, the service's answers and its message stream. */

import type { Curve, Curves, Message, Overview } from '../api/types';
import { LiveCurves } from './curves';
import { after, ended, overviewIn, sameExperiment } from './overview';
import type { Saved, SavedSearch } from './saved';

const TRIAL = 1; // trial whose curves are stored by default

export class ExperimentCache {
  private _overview: Overview | null = null;
  private _curves = new LiveCurves(TRIAL);
  private _heard = 0;
  private _complete = false;
  private _captured: readonly string[] = [];
  private _search: SavedSearch | null = null;

  constructor(private readonly _number: number) {}

  get overview(): Overview | null {
    return this._overview;
  }

  get curves(): readonly Curve[] {
    return this._curves.curves;
  }

  /** Trial to which the curves belong; for a search, a notebook stores the curves of the best trial. */
  get trial(): number {
    return this._curves.trial;
  }

  /** Sentences about the submission; only a notebook's output has them. */
  get captured(): readonly string[] {
    return this._captured;
  }

  /** Status of a search when the notebook was saved. */
  get search(): SavedSearch | null {
    return this._search;
  }

  get ended(): boolean {
    return this._overview !== null && ended(this._overview);
  }

  /** Whether the curves are complete, from the service, and not those downsampled for a notebook. */
  get complete(): boolean {
    return this._complete;
  }

  /** Sequence number up to which the stream was received: the curves include every report up to it. */
  get heard(): number {
    return this._heard;
  }

  /** Sequence number up to which both overview and curves are complete; the stream is watched from here. */
  get seq(): number {
    return Math.min(this._overview?.seq ?? 0, this._heard);
  }

  /** Merge the state in a notebook's output if it is newer; return false if nothing changes. */
  restore(saved: Saved): boolean {
    const overview = overviewIn(saved.overview);
    if (overview === null || saved.number !== this._number || !this._isNewer(overview)) {
      return false;
    }
    this._overview = overview;
    this._captured = saved.captured;
    this._search = saved.search;
    if (saved.curves) {
      this._curves = new LiveCurves(saved.curves.trial, saved.curves);
    }
    this._complete = false;
    return true;
  }

  /** Return whether the overview is of this experiment, and not of another one with the same number. */
  agrees(overview: Overview): boolean {
    return this._overview === null || sameExperiment(this._overview, overview);
  }

  /** Replace the overview by the service's. */
  take(overview: Overview): void {
    this._overview = overview;
  }

  takeCurves(curves: Curves): void {
    this._curves = new LiveCurves(curves.trial, curves);
    this._heard = curves.seq;
    this._complete = true;
  }

  /** Apply a message of the stream; return false if it contains nothing new. */
  hear(message: Message): boolean {
    const before = this._overview;
    if (before === null || message.experiment !== this._number) {
      return false;
    }
    this._overview = after(before, message);
    this._heard = Math.max(this._heard, message.seq);
    const grown = message.type === 'report' && this._curves.add(message.data);
    return grown || this._overview !== before;
  }

  private _isNewer(overview: Overview): boolean {
    return this._overview === null || (this.agrees(overview) && overview.seq > this._overview.seq);
  }
}
