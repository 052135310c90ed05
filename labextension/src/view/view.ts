/** View of one experiment, drawn into a node and kept up to date. */

import type { Curves as CurvesOf } from '../api/types';
import { stateOf } from '../model/overview';
import type { Look, Watch } from '../service/watch';
import { Actions } from './actions';
import { Artifacts } from './artifacts';
import { Curves } from './curves';
import { Details } from './details';
import { h, keepKeys, setAttribute } from './dom';
import { DifferencePart } from './difference';
import { Disclosure } from './disclosure';
import { FailureBox } from './failure';
import { Frame } from './frame';
import { Head, ticking } from './head';
import { LabelPart } from './labels';
import { Log } from './log';
import { MovePart } from './move';
import { Notes, warningsOf } from './notes';
import { NextSteps } from './nextsteps';
import { newestStep } from './plotted';
import { Progress } from './progress';
import { RerunPart } from './rerun';
import { SearchPlace } from './searchplace';
import { DEFAULTS, type ViewSettings } from './settings';
import { ConnectionNotice } from './connectionerror';
import { SourcePart } from './source';
import { Times } from './times';
import { Utilisation } from './utilisation';

export { DEFAULTS, type Axis, type ViewSettings } from './settings';

const TICK_MS = 1000;

/** The part of Watch that a view needs. */
export type Watched = Pick<
  Watch,
  'look' | 'subscribe' | 'act' | 'retry' | 'logs' | 'ask' | 'artifact' | 'file' | 'post' | 'rerun' | 'pools'
>;

export class ExperimentView {
  private readonly _root = h('article', { class: 'dl-sheet dl-view', onkeydown: keepKeys });
  private readonly _frame = new Frame(() => this._draw());
  private readonly _head = new Head();
  private readonly _forms: readonly (RerunPart | DifferencePart | SourcePart | LabelPart | MovePart)[];
  private readonly _progress = new Progress();
  private readonly _failure = new FailureBox();
  private readonly _warnings = new Notes('Warnings', warningsOf, 'dl-warnings');
  private readonly _details = new Details();
  private readonly _problem: ConnectionNotice;
  private readonly _actions: Actions;
  private readonly _search: SearchPlace;
  private readonly _next: NextSteps;
  private readonly _curves: Curves;
  private readonly _times: Times;
  private readonly _utilisation: Utilisation;
  private readonly _artifacts: Artifacts;
  private readonly _log: Log;
  private readonly _unsubscribe: () => void;
  private readonly _ticking: ReturnType<typeof setInterval>;
  private _look: Look;
  private _trial: CurvesOf | null = null; // curves of the selected trial of a search
  private _fresh = true; // not drawn yet

  constructor(node: HTMLElement, watch: Watched, settings: ViewSettings = DEFAULTS) {
    this._look = watch.look;
    this._root.dataset.dlExperiments = String(watch.look.number);
    node.append(this._root);
    this._problem = new ConnectionNotice(watch);
    const labels = new LabelPart(watch);
    const rerun = new RerunPart(watch);
    this._next = new NextSteps(watch, rerun.disclosure.opener);
    const forms = [rerun, new DifferencePart(watch), new SourcePart(watch)];
    this._forms = [...forms, labels, new MovePart(watch)];
    const disclosures = this._forms.map(part => part.disclosure);
    this._actions = new Actions(
      watch,
      disclosures.map(({ opener }) => opener)
    );
    Disclosure.join(disclosures, this._actions.menu.opener);
    this._search = new SearchPlace(watch, curves => this._looked(curves));
    this._curves = new Curves(this._root, settings, () => this._frame.request());
    this._times = new Times(watch);
    this._utilisation = new Utilisation(this._root, watch);
    this._artifacts = new Artifacts(watch);
    this._log = new Log(watch);
    this._root.append(...this._parts());
    this._unsubscribe = watch.subscribe(look => {
      this._look = look;
      this._fresh = true;
      this._frame.request();
    });
    this._ticking = setInterval(() => this._tick(), TICK_MS);
    try {
      this._draw();
    } catch (error) {
      this.dispose(); // a notebook's saved state may be damaged
      throw error;
    }
  }

  /** Settings of the curves. */
  set settings(settings: ViewSettings) {
    this._curves.settings = settings;
    this._frame.request();
  }

  dispose(): void {
    clearInterval(this._ticking);
    this._unsubscribe();
    this._frame.dispose();
    this._actions.dispose();
    this._search.dispose();
    this._curves.dispose();
    this._times.dispose();
    this._utilisation.dispose();
    this._artifacts.dispose();
    this._log.dispose();
    this._root.remove();
  }

  private _parts(): HTMLElement[] {
    const top = h('header', { class: 'dl-top' }, this._head.root, this._actions.buttons);
    return [
      top,
      this._actions.root,
      ...this._forms.map(part => part.root),
      this._problem.root,
      this._progress.root,
      this._failure.root,
      this._warnings.root,
      this._next.root,
      this._search.root,
      this._curves.root,
      this._times.root,
      this._utilisation.root,
      this._artifacts.root,
      this._details.root,
      this._log.root
    ];
  }

  private _draw(): void {
    const look = this._look;
    if (this._fresh) {
      this._fresh = false;
      this._write(look);
    }
    const shown = this._shown(look);
    if (this._curves.draw() || shown.curves.length === 0) {
      setAttribute(this._root, 'data-step', String(newestStep(shown)));
    }
  }

  private _write(look: Look): void {
    const name = look.overview?.experiment.name ?? '';
    setAttribute(this._root, 'aria-label', `Experiment #${look.number} ${name}`.trim());
    setAttribute(this._root, 'data-state', look.overview ? stateOf(look.overview) : '');
    setAttribute(this._root, 'data-connection', look.connection);
    for (const part of [
      this._head,
      this._progress,
      this._failure,
      this._warnings,
      this._next,
      this._problem,
      this._actions,
      ...this._forms,
      this._details,
      this._search
    ]) {
      part.update(look);
    }
    this._writeTrial(look);
  }

  /** Draw curves and log of the selected trial of a search. */
  private _writeTrial(look: Look): void {
    this._curves.update(this._shown(look));
    this._times.update(look, this._chosen(look));
    this._utilisation.update(look, this._chosen(look));
    this._artifacts.update(look, this._chosen(look));
    this._log.update(look, this._chosen(look));
  }

  /** Return the selected trial of a search; null if there is a single trial. */
  private _chosen(look: Look): number | null {
    return look.overview?.experiment.config.search ? this._search.trial : null;
  }

  /** Return the data to draw, with the curves of the selected trial. */
  private _shown(look: Look): Look {
    const trial = this._chosen(look);
    if (trial === null || trial === look.trial) {
      return look;
    }
    return { ...look, trial, curves: this._trial?.trial === trial ? this._trial.curves : [] };
  }

  private _looked(curves: CurvesOf): void {
    this._trial = curves;
    this._writeTrial(this._look);
    this._frame.request();
  }

  private _tick(): void {
    if (ticking(this._look)) {
      this._head.tick(this._look);
      this._progress.update(this._look);
      this._times.tick();
      this._utilisation.tick();
    }
  }
}
