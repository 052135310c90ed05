/** The side panel, which draws the state of `Experiments`. */

import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { Overview } from '../api/types';
import { groupParams } from './groups';
import { Filters, GroupChoice, Meters, Refresh } from './head';
import type { Experiments } from './experiments';
import { sunIcon } from './icon';
import { Item } from './item';
import { EVERYTHING, isNarrow, MOST_COMPARED, placeAfter } from './list';
import type { Filter } from './list';
import { QueuePart } from './queue';
import { Beginning, Nothing, LoadError, Warnings } from './notices';

/** Callbacks for actions that the panel does not perform itself. */
export interface Doors {
  open: (number: number) => void;
  compare: (numbers: readonly number[]) => void;
}

export class Panel extends ReactWidget {
  private _notebook: string | null = null;

  constructor(
    private readonly _experiments: Experiments,
    private readonly _doors: Doors
  ) {
    super();
    this.id = 'daylight-panel';
    this.addClass('dl-panel');
    this.title.icon = sunIcon;
    this.title.caption = 'Daylight';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Daylight');
    _experiments.changed.connect(() => this.update());
  }

  /**
   * Set the notebook in front. For any other widget the last notebook stays selected, so that the header keeps its
   * height.
   */
  set notebook(path: string | null) {
    if (path === null) {
      return;
    }
    this._notebook = path;
    this._experiments.follow(path);
    this.update();
  }

  protected override onAfterShow(): void {
    this._experiments.watched = true;
  }

  protected override onBeforeHide(): void {
    this._experiments.watched = false;
  }

  protected override render(): React.JSX.Element {
    const { nodes, filter, error } = this._experiments;
    const refresh = (): void => this._experiments.refresh();
    return (
      <>
        <header className="dl-panel-head">
          <div className="dl-panel-top">
            <Meters nodes={error ? [] : nodes} />
            <Refresh refresh={refresh} />
          </div>
          <Filters filter={filter} notebook={this._notebook} narrow={change => this._narrow(change)} />
          <GroupChoice
            group={this._experiments.group}
            params={groupParams(this._experiments.list, this._experiments.group)}
            choose={group => (this._experiments.group = group)}
          />
        </header>
        {error && <LoadError error={error} again={refresh} />}
        <Warnings texts={this._experiments.warnings} />
        {this._body()}
        <QueuePart
          queue={this._experiments.queue}
          shown={this._experiments.queueShown}
          show={shown => (this._experiments.queueShown = shown)}
          open={this._doors.open}
        />
        <Choice chosen={this._experiments.chosen} compare={this._doors.compare} none={() => this._none()} />
      </>
    );
  }

  private _body(): React.JSX.Element | null {
    const { list, filter, error, loaded } = this._experiments;
    if (!loaded) {
      return error ? null : <p className="dl-quiet">Looking for experiments…</p>;
    }
    if (list.length === 0 && !error) {
      return isNarrow(filter) ? <Nothing all={() => (this._experiments.filter = EVERYTHING)} /> : <Beginning />;
    }
    return (
      <div className="dl-list-box" data-stale={error !== null}>
        {this._groups()}
        {this._experiments.hasMore && (
          <button type="button" className="dl-more" onClick={() => this._experiments.more()}>
            Load more
          </button>
        )}
      </div>
    );
  }

  private _groups(): React.JSX.Element {
    const { groups, group } = this._experiments;
    return (
      <div onKeyDown={move}>
        {groups.map(({ title, items }) =>
          group === '' ? (
            <React.Fragment key={title}>{this._list(items, 'Experiments')}</React.Fragment>
          ) : (
            <details key={title} className="dl-group" open>
              <summary>
                <span className="dl-group-title">{title}</span> <span className="dl-group-count">{items.length}</span>
              </summary>
              {this._list(items, title)}
            </details>
          )
        )}
      </div>
    );
  }

  private _list(list: readonly Overview[], name: string): React.JSX.Element {
    const { chosen, at } = this._experiments;
    return (
      <ul className="dl-list" aria-label={name}>
        {list.map(overview => {
          const { number } = overview.experiment;
          return (
            <Item
              key={number}
              overview={overview}
              now={at}
              chosen={chosen.includes(number)}
              open={() => this._doors.open(number)}
              choose={wanted => this._experiments.choose(number, wanted)}
            />
          );
        })}
      </ul>
    );
  }

  private _narrow(change: Partial<Filter>): void {
    this._experiments.filter = { ...this._experiments.filter, ...change };
  }

  private _none(): void {
    this._experiments.chooseNone();
  }
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
