/** A search: summary, charts in tabs, and the table of trials; a clicked trial is shown below. */

import type { Curves, Importance, SearchCurves, SearchStatus } from '../../api/types';
import { searchText } from '../../model/text';
import { messageOf } from '../../service/source';
import type { Look, Watch } from '../../service/watch';
import { button, changes, h, setAttribute, setText, show } from '../dom';
import { Sight } from '../frame';
import { type Loaded, LoadingProblem } from './loadingproblem';
import { Polling } from './polling';
import { Tabs } from './tabs';
import { CurvesTab } from './tabcurves';
import { ImportanceTab } from './tabimportance';
import { PairsTab } from './tabpairs';
import { ParallelTab } from './tabparallel';
import { ProgressTab } from './tabprogress';
import type { TabView } from './tabview';
import { frontTrial, statusOf } from './savedstatus';
import { isOpen, Steering, steersFor } from './steering';
import { TrialBar } from './trialbar';
import { TrialTable } from './trials';

const EVERY_MS = 1500;
const ROWS = 500; // trials that are drawn
const LINES = 150; // learning curves

/** Answers of the service about the search. */
type SearchAnswers = Partial<Pick<TabView, 'status'> & { curves: SearchCurves; importance: Importance }>;

export type SearchSource = Pick<Watch, 'ask' | 'act'>;

export class SearchPart {
  private readonly _bar = new TrialBar();
  private readonly _words = h('p', { class: 'dl-search-words' });
  private readonly _spent = h('p', { class: 'dl-dim' });
  private readonly _problem = new LoadingProblem(() => this._again(true));
  private readonly _chosen = h('span', { class: 'dl-chosen-name' });
  private readonly _best = button('show the best', () => this._pick(null), 'dl-quiet');
  private readonly _heading = h('div', { class: 'dl-chosen-head' }, this._chosen, this._best);
  private readonly _tabs: Tabs;
  private readonly _table: TrialTable;
  private readonly _steering: Steering;
  private readonly _parallel: ParallelTab;
  private readonly _sight: Sight;
  private readonly _pictured = changes();
  private readonly _listed = changes();
  private readonly _status: Polling<SearchStatus>;
  private readonly _curves: Polling<SearchCurves>;
  private readonly _importance: Polling<Importance>;
  private readonly _trialCurves: Polling<Curves>;
  private _look: Look | null = null;
  private _seen: TabView | null = null;
  private _answers: SearchAnswers = {};
  private _seq = -1; // sequence number of the last request
  private _picked: number | null = null; // trial selected by the user; null: the best
  readonly root: HTMLElement;

  /** `looked` is called with the curves of the selected trial. */
  constructor(
    private readonly _watch: SearchSource,
    private readonly _looked: (curves: Curves) => void
  ) {
    const pick = (trial: number): void => this._pick(trial);
    this._parallel = new ParallelTab(pick, () => this._draw());
    this._tabs = new Tabs(
      [
        ['Progress', new ProgressTab(pick)],
        ['Curves', new CurvesTab(pick)],
        ['Parameters', this._parallel],
        ['Pairs', new PairsTab(pick)],
        ['Importance', new ImportanceTab(pick)]
      ],
      () => this._again(true)
    );
    this._steering = new Steering(_watch);
    this._table = new TrialTable(
      () => this._status.want(true),
      pick,
      row => (this._look ? steersFor(this._look, row) : []),
      (trial, verb, opener) => this._steering.steer(trial, verb, this._look?.number ?? 0, opener)
    );
    this.root = h(
      'section',
      { class: 'dl-search', 'aria-label': 'Search' },
      this._bar.root,
      this._words,
      this._spent,
      this._steering.more,
      this._tabs.root,
      this._problem.root,
      this._table.root,
      this._steering.root,
      this._heading
    );
    this._sight = new Sight(this.root, () => this._again(true));
    const failed = (what: Loaded) => (error: unknown) => this._failed(what, error);
    const ask = <Answer>(path: string, query = {}): Promise<Answer> => this._watch.ask(path, query) as Promise<Answer>;
    this._status = new Polling(
      () => ask<SearchStatus>('/search', { sort: this._table.sort, limit: ROWS }),
      status => this._know({ status }),
      failed('trials'),
      EVERY_MS
    );
    this._curves = new Polling(
      () => ask<SearchCurves>('/search/curves', { limit: LINES, points: 80 }),
      curves => this._know({ curves }),
      failed('curves'),
      EVERY_MS
    );
    this._importance = new Polling(
      () => ask<Importance>('/search/importance'),
      importance => this._know({ importance }),
      failed('importance'),
      4 * EVERY_MS
    );
    this._trialCurves = new Polling(
      () => ask<Curves>('/curves', { trial: this.trial ?? 1 }),
      curves => this._knowTrial(curves),
      failed('trial'),
      EVERY_MS
    );
  }

  /** Selected trial: the one that was clicked, else the best; null if there is none. */
  get trial(): number | null {
    return this._picked ?? frontTrial(this._seen?.status ?? null);
  }

  update(look: Look): void {
    // Not once the service has told it: trials report many times a second, and all would be sorted each time.
    const status = this._answers.status ?? (look.overview && (look.search?.standing ?? statusOf(look.overview)));
    show(this.root, status !== null);
    this._look = look;
    if (look.overview === null || status === null) {
      return;
    }
    const { curves = look.search?.curves ?? null, importance = null } = this._answers;
    this._seen = { status, curves, importance, look, trial: this.trial, failed: this._problem.of };
    this._draw();
    this._again();
  }

  dispose(): void {
    this._sight.dispose();
    this._tabs.dispose();
    this._table.dispose();
    for (const each of [this._status, this._curves, this._importance, this._trialCurves]) {
      each.dispose();
    }
  }

  /** Request the data of the visible parts if the experiment has changed; with `now` in any case, and at once. */
  private _again(now = false): void {
    const look = this._look;
    const seq = look?.overview?.seq ?? -1;
    // Once the service has answered; a first picture need not wait for the stream to open.
    const heard = look?.heard === true && ['connecting', 'live', 'ended'].includes(look.connection);
    if (!heard || !this._sight.visible || (seq === this._seq && !now) || look.overview === null) {
      return;
    }
    this._seq = seq;
    this._status.want(now);
    if (this._tabs.shown === 'Curves') {
      this._curves.want(now);
    }
    if (this._tabs.shown === 'Importance') {
      this._importance.want(now);
    }
    if (this.trial !== null) {
      this._trialCurves.want(now);
    }
  }

  private _know(told: SearchAnswers): void {
    this._problem.solved('status' in told ? 'trials' : 'curves' in told ? 'curves' : 'importance');
    this._answers = { ...this._answers, ...told };
    if (this._seen) {
      const before = this.trial;
      this._seen = { ...this._seen, ...told };
      if (this.trial !== before) {
        this._trialCurves.want(true);
      }
      this._draw();
    }
  }

  private _pick(trial: number | null): void {
    this._picked = trial === this._picked ? null : trial;
    this._trialCurves.want(true);
    this._draw();
  }

  private _knowTrial(curves: Curves): void {
    this._problem.solved('trial');
    if (curves.trial === this.trial) {
      this._looked(curves);
    }
  }

  private _failed(what: Loaded, error: unknown): void {
    this._problem.add(what, messageOf(error));
    this._draw();
  }

  private _draw(): void {
    if (this._seen === null) {
      return;
    }
    const seen = (this._seen = { ...this._seen, trial: this.trial, failed: this._problem.of });
    const { status } = seen;
    const { connection, overview } = seen.look;
    this._bar.update(status, connection === 'live' ? (overview?.experiment.config.slots ?? null) : null);
    setText(this._words, seen.look.overview ? searchText(seen.look.overview) : '');
    setText(this._spent, status.usage);
    show(this._spent, status.usage !== '');
    this._steering.update(seen.look, status);
    // Reports arrive many times a second, the status of the search less often: only what has changed is drawn.
    const { brushes } = this._parallel;
    const experiment = seen.look.overview?.experiment;
    if (this._pictured(status, seen.curves, seen.importance, seen.trial, experiment?.space, brushes, seen.failed)) {
      this._tabs.draw(seen);
    }
    if (this._listed(status, this._picked, brushes, experiment?.state, isOpen(seen.look))) {
      this._table.update(status, row => this._parallel.lets(row), this._picked);
    }
    const word = this._picked === null ? 'the best trial' : 'trial';
    setText(this._chosen, this.trial === null ? '' : `${word} ${status.number}.${this.trial}`);
    show(this._heading, this.trial !== null);
    show(this._best, this._picked !== null);
    setAttribute(this.root, 'data-trials', String(status.trials.length));
  }
}
