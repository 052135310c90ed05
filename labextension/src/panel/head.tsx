/** Header of the panel: slots in use, search field, filters. */

import { refreshIcon, tableRowsIcon, folderFavoriteIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { NodeUse } from '../api/types';
import { groupByIn } from './groupby';
import type { GroupBy } from './groupby';
import type { Filter } from './list';
import { STATES } from './list';

const TYPING_MS = 250; // delay after the last key before the search begins

export function Meters({ nodes }: { nodes: readonly NodeUse[] }): React.JSX.Element {
  return (
    <div className="dl-meters">
      {nodes.map(node => (
        <Meter key={node.name} node={node} name={nodes.length === 1 ? '' : node.name} />
      ))}
    </div>
  );
}

function Meter({ node, name }: { node: NodeUse; name: string }): React.JSX.Element {
  const { used, slots, devices, healthy } = node;
  const text = `${used} of ${slots} ${slots === 1 ? 'slot' : 'slots'} in use`;
  const note = healthy ? '' : ' (does not answer)';
  return (
    <div className="dl-meter" title={devices.join(', ')}>
      <span className="dl-meter-text">
        {name && <span className="dl-meter-name">{name} </span>}
        {text + note}
      </span>
      <div
        className="dl-meter-bar"
        role="meter"
        aria-label={name ? `Slots in use, ${name}` : 'Slots in use'}
        aria-valuemin={0}
        aria-valuemax={slots}
        aria-valuenow={used}
        aria-valuetext={text}
      >
        <div style={{ width: `${slots ? (100 * used) / slots : 0}%` }} />
      </div>
    </div>
  );
}

interface HeadProps {
  table: () => void;
  models: () => void;
  refresh: () => void;
}

/** Buttons that show all experiments and the registered models in tables, and ask the service again. */
export function HeadButtons({ table, models, refresh }: HeadProps): React.JSX.Element {
  const buttons = [
    ['Experiments', 'All experiments in a table', tableRowsIcon, table],
    ['Models', 'Registered models', folderFavoriteIcon, models],
    ['Refresh', 'Look again', refreshIcon, refresh]
  ] as const;
  return (
    <span>
      {buttons.map(([name, title, icon, press]) => (
        <button key={name} type="button" className="dl-icon-button" aria-label={name} title={title} onClick={press}>
          <icon.react tag="span" stylesheet="menuItem" />
        </button>
      ))}
    </span>
  );
}

interface FilterProps {
  filter: Filter;
  notebook: string | null; // the last notebook that was in front
  narrow: (filter: Partial<Filter>) => void;
}

export function Filters({ filter, notebook, narrow }: FilterProps): React.JSX.Element {
  const here = notebook ?? filter.notebook;
  return (
    <>
      <Search text={filter.search} search={search => narrow({ search })} />
      <div className="dl-filters" role="group" aria-label="Show">
        {STATES.map(state => (
          <Toggle
            key={state}
            pressed={filter.state === state}
            press={pressed => narrow({ state: pressed ? state : null })}
            text={state}
          />
        ))}
        <Toggle
          pressed={filter.notebook !== null}
          press={pressed => narrow({ notebook: pressed ? here : null })}
          text="this notebook"
          title={here ?? 'No notebook was opened yet'}
          disabled={here === null}
        />
      </div>
    </>
  );
}

interface GroupProps {
  group: GroupBy;
  params: readonly string[]; // hyperparameters by which the experiments can be grouped
  choose: (group: GroupBy) => void;
}

/** Choice of what the experiments are grouped by. */
export function GroupChoice({ group, params, choose }: GroupProps): React.JSX.Element {
  return (
    <label className="dl-group-by">
      Group by{' '}
      <select value={group} onChange={event => choose(groupByIn(event.target.value))}>
        <option value="">nothing</option>
        <option value="tag">tag</option>
        <option value="state">state</option>
        <option value="notebook">notebook</option>
        {params.length > 0 && (
          <optgroup label="Hyperparameters">
            {params.map(name => (
              <option key={name} value={`param:${name}`}>
                {name}
              </option>
            ))}
          </optgroup>
        )}
      </select>
    </label>
  );
}

interface ToggleProps {
  pressed: boolean;
  press: (pressed: boolean) => void;
  text: string;
  title?: string;
  disabled?: boolean;
}

function Toggle({ pressed, press, text, title = '', disabled = false }: ToggleProps): React.JSX.Element {
  return (
    <button
      type="button"
      className="dl-filter"
      aria-pressed={pressed}
      title={title}
      disabled={disabled}
      onClick={() => press(!pressed)}
    >
      {text}
    </button>
  );
}

/** Search field; `text` is the current search, and `search` is called with typed text after a short delay. */
function Search({ text, search }: { text: string; search: (text: string) => void }): React.JSX.Element {
  const [typed, setTyped] = React.useState(text);
  const timer = React.useRef<ReturnType<typeof setTimeout>>(undefined);
  React.useEffect(() => setTyped(text), [text]);
  React.useEffect(() => () => clearTimeout(timer.current), []);
  const type = (value: string, pause: number): void => {
    setTyped(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => search(value), pause);
  };
  return (
    <input
      type="search"
      className="dl-search"
      aria-label="Search experiments"
      placeholder="Name, note, tag or number"
      value={typed}
      onChange={event => type(event.target.value, event.target.value ? TYPING_MS : 0)}
      onKeyDown={event => {
        if (event.key === 'Enter') {
          type(typed, 0);
        }
      }}
    />
  );
}
