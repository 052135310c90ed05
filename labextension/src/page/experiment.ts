/** The page of one experiment, at `experiments/12`: the view that JupyterLab shows, over the service's own API. */

import 'uplot/dist/uPlot.min.css';
import '../../style/pageframe.css';
import '../../style/view.css';

import { titleText } from '../model/text';
import { opensExperiments } from '../service/opening';
import { Watch } from '../service/watch';
import type { Look } from '../service/watch';
import { ExperimentView } from '../view/view';
import { PageFrame } from './frame';
import { PageSource } from './source';
import { ownToken } from './token';

const CLUSTER = '../';
const HIDDEN = 'It was deleted for good, or it is an experiment that you may not see.';

class ExperimentPage {
  private readonly _frame: PageFrame;
  private readonly _watch: Watch;
  private readonly _view: ExperimentView;

  constructor(
    root: HTMLElement,
    source: PageSource,
    private readonly _number: number
  ) {
    this._frame = new PageFrame(root, CLUSTER);
    this._watch = new Watch(source, _number);
    this._view = new ExperimentView(this._frame.body, this._watch);
    this._watch.subscribe(look => this._changed(look));
    this._watch.start();
    document.addEventListener('visibilitychange', () => (document.hidden ? this._watch.rest() : this._watch.wake()));
    void this._frame.greet(source, String(_number), () => this._close());
  }

  private _changed({ overview, connection }: Look): void {
    if (overview) {
      document.title = `${titleText(overview)} \u2013 Daylight`;
    } else if (connection === 'gone') {
      this._close();
      this._frame.refuse(`There is no experiment #${this._number} for you`, [HIDDEN]);
    }
  }

  private _close(): void {
    this._view.dispose();
    this._watch.dispose();
  }
}

const root = document.getElementById('daylight');
const number = Number(/(\d+)\/?$/.exec(location.pathname)?.[1]);
if (root && number) {
  document.title = `#${number} \u2013 Daylight`;
  opensExperiments(other => location.assign(String(other)));
  const base = new URL(CLUSTER, document.baseURI).href;
  new ExperimentPage(root, new PageSource(base, ownToken(location, sessionStorage, history)), number);
}
