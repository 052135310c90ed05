/** Reproducibility guarantee, ends of attempts, notes, and warnings. */

import type { Overview } from '../api/types';
import { attemptLines, guaranteeText } from '../model/text';
import type { Look } from '../service/watch';
import { changes, h, setLines, show } from './dom';

const NO_LINES: readonly string[] = [];

function factsOf(overview: Overview): string[] {
  // Ends of a search's trials are routine, and not listed.
  const attempts = overview.experiment.config.search === null ? attemptLines(overview) : [];
  return [guaranteeText(overview), ...attempts].filter(line => line !== '');
}

export class Notes {
  private readonly _attempts = h('ul', { class: 'dl-notes', 'aria-label': 'Attempts' });
  private readonly _warnings = h('ul', { class: 'dl-notes dl-warnings', 'aria-label': 'Warnings' });
  private readonly _changed = changes();
  readonly root = h('div', {}, this._attempts, this._warnings);

  update(look: Look): void {
    const overview = look.overview;
    if (!this._changed(overview?.attempts, overview?.warnings, overview?.informational)) {
      return;
    }
    for (const [list, lines] of [
      [this._attempts, overview ? factsOf(overview) : NO_LINES],
      [this._warnings, overview?.warnings ?? NO_LINES]
    ] as const) {
      setLines(list, lines, () => h('li'));
      show(list, lines.length > 0);
    }
    // A note that only informs has no sign of danger.
    const informational = new Set(overview?.informational);
    for (const line of this._warnings.children) {
      line.classList.toggle('dl-informational', informational.has(line.textContent));
    }
    show(this.root, !this._attempts.hidden || !this._warnings.hidden);
  }
}
