/** One experiment in the panel's list. */

import * as React from 'react';

import type { Overview, Trial } from '../api/types';
import { num } from '../model/curves';
import { originText, spanTitle } from '../model/dates';
import { labelsOf } from '../model/labels';
import { ended, frontOf, stateOf } from '../model/overview';
import { partsOf } from '../model/trialparts';
import {
  duration,
  elapsed,
  epochText,
  knownEpochs,
  newestOf,
  resultText,
  runsAsItIs,
  stateText,
  trialsText
} from '../model/text';

interface Props {
  overview: Overview;
  now: number;
  chosen: boolean;
  open: () => void;
  choose: (chosen: boolean) => void;
}

export function Item({ overview, now, chosen, open, choose }: Props): React.JSX.Element {
  const { number } = overview.experiment;
  const drag = (event: React.DragEvent): void => {
    event.dataTransfer.setData('text/plain', `%dl show ${number}`);
    event.dataTransfer.effectAllowed = 'copy';
  };
  return (
    <li className="dl-item" data-number={number} data-state={stateOf(overview)} draggable onDragStart={drag}>
      <input
        type="checkbox"
        aria-label={`Compare #${number}`}
        title="Compare"
        checked={chosen}
        onChange={event => choose(event.target.checked)}
      />
      <button type="button" className="dl-item-open" onClick={open}>
        <Facts overview={overview} now={now} />
      </button>
    </li>
  );
}

function Facts({ overview, now }: { overview: Overview; now: number }): React.JSX.Element {
  const { number, name, notebook, config } = overview.experiment;
  const trial = frontOf(overview);
  const begun = trial && trial.step > 0 && !runsAsItIs(config) ? trial : null; // code run unchanged has no epochs
  const result = resultText(overview);
  const broken = trial && Object.values(newestOf(trial)[1]).some(value => !Number.isFinite(num(value)));
  const { tags, note } = labelsOf(overview.experiment);
  return (
    <>
      <span className="dl-item-top">
        <span className="dl-item-title" title={note ? `${name}\n${note}` : name}>
          <span className="dl-number">#{number}</span> {name}
        </span>{' '}
        <span className="dl-item-time">{duration(Math.max(0, elapsed(overview, now)))}</span>
      </span>{' '}
      <span className="dl-item-origin" title={[spanTitle(overview), notebook ?? ''].join('\n').trim()}>
        {originText(overview.experiment, now)}
      </span>{' '}
      <span className="dl-item-state">
        <span className="dl-chip" data-state={stateOf(overview)}>
          {stateText(overview)}
        </span>{' '}
        {begun && <span className="dl-item-epoch">{progress(overview, begun)}</span>}
      </span>{' '}
      {begun && !ended(overview) && config.search === null && !config.epochs_unknown && (
        <span className="dl-item-bar" aria-hidden="true">
          <span style={{ width: `${Math.min(100, (100 * begun.epoch) / config.epochs)}%` }} />
        </span>
      )}
      {config.search !== null && !ended(overview) && (
        <span className="dl-trial-bar" aria-hidden="true">
          {partsOf(overview).map(({ kind, count, text }) => (
            <span key={kind} className="dl-trial-part" data-kind={kind} title={text} style={{ flexGrow: count }} />
          ))}
        </span>
      )}
      {tags.length > 0 && (
        <span className="dl-tags">
          {tags.map(tag => (
            <span key={tag} className="dl-tag">
              {tag}
            </span>
          ))}
        </span>
      )}{' '}
      {result && (
        <span className={`dl-item-metrics ${broken ? 'dl-item-broken' : ''}`} title={result}>
          {result}
        </span>
      )}
    </>
  );
}

/** Return the epoch, or the number of a search's trials once its state does not name it. */
function progress(overview: Overview, { epoch }: Trial): string {
  const { config } = overview.experiment;
  const trials = ended(overview) ? trialsText(overview) : '';
  return config.search === null ? epochText(epoch, knownEpochs(config)) : trials;
}
