/** Warnings about an experiment, and what only informs: guarantee, ends of attempts, and notes. */

import type { Overview } from '../api/types';
import { attemptLines, guaranteeText } from '../model/text';
import type { Look } from '../service/watch';
import { changes, h, setLines, show } from './dom';

/** Return the warnings, for a place above the curves. */
export function warningsOf({ warnings, informational }: Overview): string[] {
  return warnings.filter(line => !informational.includes(line));
}

/** Return what only informs, each list by its name. */
export function factsOf(overview: Overview): Record<'Attempts' | 'Notes', string[]> {
  // Ends of a search's trials are routine, and not listed.
  const attempts = overview.experiment.config.search === null ? attemptLines(overview) : [];
  return {
    Attempts: [guaranteeText(overview), ...attempts].filter(line => line !== ''),
    Notes: overview.warnings.filter(line => overview.informational.includes(line))
  };
}

/** List of lines, hidden while there are none. */
export class Notes {
  private readonly _changed = changes();
  readonly root: HTMLUListElement;

  constructor(
    name: string,
    private readonly _linesOf: (overview: Overview) => readonly string[],
    look = ''
  ) {
    this.root = h('ul', { class: `dl-notes ${look}`.trim(), 'aria-label': name, hidden: true });
  }

  update({ overview }: Look): void {
    if (this._changed(overview?.attempts, overview?.warnings, overview?.informational)) {
      const lines = overview ? this._linesOf(overview) : [];
      setLines(this.root, lines, () => h('li'));
      show(this.root, lines.length > 0);
    }
  }
}
