/** Contents of the side panel, which draw the state of `Experiments`. Loaded when the panel is first shown. */

import * as React from 'react';

import type { Overview } from '../api/types';
import type { Experiments } from './experiments';
import { groupParams, groupsOf, valuesOf } from './groups';
import { Filters, GroupChoice, HeadButtons, Meters } from './head';
import { Item } from './item';
import { EVERYTHING, isNarrow, MOST_COMPARED } from './list';
import { placeAfter } from '../view/arrowkeys';
import { QueuePart } from './queue';
import { Beginning, Nothing, LoadError, Warnings } from './notices';

/** Callbacks for actions that the panel does not perform itself. */
export interface Doors {
  open: (number: number) => void;
  compare: (numbers: readonly number[]) => void;
  table: () => void;
  models: () => void;
}

/** What the panel's parts draw, and the actions that they offer. */
export interface PanelProps {
  experiments: Experiments;
  notebook: string | null; // the one in front
  doors: Doors;
}

export function PanelBody({ experiments, notebook, doors }: PanelProps): React.JSX.Element {
  const { nodes, filter, error, list, group } = experiments;
  const refresh = (): void => experiments.refresh();
  return (
    <>
      <div className="dl-panel-head">
        <div className="dl-panel-top">
          <h2 className="dl-panel-title">Daylight</h2>
          {experiments.address !== '' && (
            <a className="dl-panel-link" href={`${experiments.address}/`} target="_blank" rel="noopener">
              Cluster page
            </a>
          )}
          <HeadButtons table={doors.table} models={doors.models} refresh={refresh} />
        </div>
        <Meters nodes={error ? [] : nodes} />
        {(list.length > 0 || isNarrow(filter)) && (
          <>
            <Filters
              filter={filter}
              notebook={notebook}
              narrow={change => (experiments.filter = { ...experiments.filter, ...change })}
            />
            <GroupChoice
              group={group}
              params={groupParams(list, group)}
              choose={chosen => (experiments.group = chosen)}
            />
          </>
        )}
      </div>
      {error && <LoadError error={error} again={refresh} />}
      <Warnings texts={experiments.warnings} />
      <ListBox experiments={experiments} open={doors.open} />
      <QueuePart
        queue={experiments.queue}
        shown={experiments.queueShown}
        show={shown => (experiments.queueShown = shown)}
        open={doors.open}
      />
      <Choice chosen={experiments.chosen} compare={doors.compare} none={() => experiments.chooseNone()} />
    </>
  );
}

interface ListProps {
  experiments: Experiments;
  open: (number: number) => void;
}

/** The listed experiments, or why there are none. */
function ListBox({ experiments, open }: ListProps): React.JSX.Element | null {
  const { list, filter, error, loaded } = experiments;
  if (!loaded) {
    return error ? null : <p className="dl-quiet">Looking for experiments…</p>;
  }
  if (list.length === 0 && !error) {
    return isNarrow(filter) ? <Nothing all={() => (experiments.filter = EVERYTHING)} /> : <Beginning />;
  }
  return (
    <div className="dl-list-box" data-stale={error !== null}>
      <Groups experiments={experiments} open={open} />
      {experiments.hasMore && (
        <button type="button" className="dl-more" onClick={() => experiments.more()}>
          Load more
        </button>
      )}
    </div>
  );
}

function Groups({ experiments, open }: ListProps): React.JSX.Element {
  const list = (items: readonly Overview[], name: string): React.JSX.Element => (
    <List experiments={experiments} open={open} items={items} name={name} />
  );
  return (
    <div onKeyDown={move}>
      {groupsOf(experiments.list, experiments.group, valuesOf).map(({ title, items }) =>
        experiments.group === '' ? (
          <React.Fragment key={title}>{list(items, 'Experiments')}</React.Fragment>
        ) : (
          <details key={title} className="dl-group" open>
            <summary>
              <span className="dl-group-title">{title}</span> <span className="dl-group-count">{items.length}</span>
            </summary>
            {list(items, title)}
          </details>
        )
      )}
    </div>
  );
}

interface ItemsProps extends ListProps {
  items: readonly Overview[];
  name: string;
}

function List({ experiments, open, items, name }: ItemsProps): React.JSX.Element {
  const { chosen, at } = experiments;
  return (
    <ul className="dl-list" aria-label={name}>
      {items.map(overview => {
        const { number } = overview.experiment;
        return (
          <Item
            key={number}
            overview={overview}
            now={at}
            chosen={chosen.includes(number)}
            open={() => open(number)}
            choose={wanted => experiments.choose(number, wanted)}
          />
        );
      })}
    </ul>
  );
}

interface ChoiceProps {
  chosen: readonly number[];
  compare: (numbers: readonly number[]) => void;
  none: () => void;
}

/** The experiments that are selected for a comparison. */
function Choice({ chosen, compare, none }: ChoiceProps): React.JSX.Element | null {
  if (chosen.length === 0) {
    return null;
  }
  const names = chosen.map(number => `#${number}`).join(', ');
  const most = chosen.length >= MOST_COMPARED ? `; no more than ${MOST_COMPARED} fit side by side` : '';
  return (
    <footer className="dl-choice">
      <span className="dl-choice-text">
        {chosen.length === 1 ? `${names}: choose another one to compare` : names + most}
      </span>
      <button type="button" className="dl-clear" onClick={none}>
        Clear
      </button>
      {chosen.length > 1 && (
        <button type="button" className="dl-compare-button" onClick={() => compare(chosen)}>
          Compare
        </button>
      )}
    </footer>
  );
}

/** Move the focus between experiments by arrow keys. */
function move(event: React.KeyboardEvent<HTMLElement>): void {
  const buttons = [...event.currentTarget.querySelectorAll<HTMLElement>('.dl-item-open')];
  const place = buttons.findIndex(button => button === document.activeElement);
  const next = place < 0 ? null : placeAfter(event.key, place, buttons.length);
  if (next !== null) {
    event.preventDefault();
    buttons[next]?.focus();
  }
}
