/** Poll for experiments that have ended, and notify the user of those without a visible view. */

import { Notification } from '@jupyterlab/apputils';
import type { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';

import type { EndedExperiments } from '../api/types';
import type { Source } from '../service/source';
import { askSince, news, noticesOf, rememberedIn } from './ended';
import type { EndNotice, Remembered } from './ended';
import type { LiveSettings } from './settings';

const ACTIVE_MS = 10_000; // interval of requests while any experiment is active; otherwise none are sent
const FOCUS_MS = 10_000; // shortest interval of requests when the page is looked at again
const LONGEST_MS = 120_000; // longest interval after failures
const BEGIN_MS = 3_000; // in which the views of restored notebooks appear
const SHOWN_MS = 30_000; // duration of a notice; then it stays in JupyterLab's list of notifications
const KEY = 'daylight:ended:';

/** What the notices need of the page. */
export interface NoticeHost {
  baseUrl: string; // by which the browser distinguishes the servers of several users
  open: (number: number) => void;
  visible: () => Promise<ReadonlySet<number>>; // experiments of which a view is visible
}

export class EndNotices implements IDisposable {
  private readonly _poll: Poll;
  private _askedAt = -Infinity;
  private _beginning: ReturnType<typeof setTimeout> | undefined;
  private _active = ''; // numbers of the active experiments that the page knows

  constructor(
    private readonly _source: Source,
    private readonly _settings: LiveSettings,
    private readonly _host: NoticeHost
  ) {
    this._poll = new Poll({
      name: 'daylight:ended',
      auto: false,
      factory: () => this._look(),
      frequency: { interval: Poll.NEVER, max: LONGEST_MS, backoff: true },
      standby: 'when-hidden'
    });
    document.addEventListener('visibilitychange', this._visibilityChanged);
  }

  /** Poll soon for what ended while no page was open, if Daylight has been used from this browser before. */
  begin(): void {
    if (this._remembered !== null) {
      this._beginning = setTimeout(() => this.look(), BEGIN_MS);
    }
  }

  /** Poll now, since an experiment may have begun or ended. */
  look(): void {
    this._askedAt = -Infinity; // a hidden page asks when it is visible again
    void this._poll.schedule({ interval: Poll.IMMEDIATE, phase: 'refreshed' });
  }

  /** Poll now if `active`, the experiments that the page knows to be active, differ from those of the last call. */
  follow(active: readonly number[]): void {
    const now = active.join();
    if (now !== this._active) {
      this._active = now;
      this.look();
    }
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    clearTimeout(this._beginning);
    document.removeEventListener('visibilitychange', this._visibilityChanged);
    this._poll.dispose();
  }

  private readonly _visibilityChanged = (): void => {
    const due = performance.now() - this._askedAt > FOCUS_MS;
    if (document.visibilityState === 'visible' && this._remembered !== null && due) {
      this.look();
    }
  };

  private async _look(): Promise<void> {
    this._askedAt = performance.now();
    const since = askSince(this._remembered);
    const query = { since: since ?? Math.floor(Date.now() / 1000) };
    const answer = (await this._source.get('/experiments/ended', query)) as EndedExperiments;
    const visible = await this._host.visible();
    if (this.isDisposed) {
      return;
    }
    this._poll.frequency = { ...this._poll.frequency, interval: answer.active ? ACTIVE_MS : Poll.NEVER };
    const { remembered, fresh } = news(this._remembered, answer, visible);
    this._remembered = remembered;
    if (this._settings.current.notices) {
      noticesOf(fresh).forEach(notice => this._show(notice));
    }
  }

  private _show({ kind, text, number }: EndNotice): void {
    const open = { label: 'Open', callback: () => number !== null && this._host.open(number) };
    Notification.emit(text, kind, { autoClose: SHOWN_MS, actions: number === null ? [] : [open] });
  }

  /** What this browser remembers; null before the first answer. */
  private get _remembered(): Remembered | null {
    return rememberedIn(window.localStorage.getItem(KEY + this._host.baseUrl));
  }

  private set _remembered(remembered: Remembered | null) {
    window.localStorage.setItem(KEY + this._host.baseUrl, JSON.stringify(remembered));
  }
}

/** Return the experiments of which a view is visible on the page. */
export function visibleViews(): Promise<ReadonlySet<number>> {
  const views = [...document.querySelectorAll<HTMLElement>('[data-dl-experiments]')];
  if (views.length === 0 || document.visibilityState !== 'visible') {
    return Promise.resolve(new Set());
  }
  return new Promise(resolve => {
    // Not a comparison of rectangles: a notebook clips what is scrolled out of it.
    const observer = new IntersectionObserver(entries => {
      observer.disconnect();
      const seen = entries.filter(each => each.isIntersecting).map(each => (each.target as HTMLElement).dataset);
      resolve(new Set(seen.flatMap(each => (each.dlExperiments ?? '').split(' ').map(Number))));
    });
    views.forEach(view => observer.observe(view));
  });
}
