/** Tables that become cards on narrow screens: each cell has the name of its column. */

import * as React from 'react';

export interface Column {
  readonly title: string;
  readonly hint?: string;
  readonly number?: boolean; // aligned to the right
  readonly sort?: { readonly now: 'ascending' | 'descending' | 'none'; turn: () => void };
}

interface TableProps {
  name: string;
  columns: readonly Column[];
  children: React.ReactNode; // <Row>s
  onKeyDown?: (event: React.KeyboardEvent<HTMLElement>) => void;
}

// Roles are explicit: a table that CSS shows as cards stays a table for screen readers.
export function Table({ name, columns, children, onKeyDown }: TableProps): React.JSX.Element {
  return (
    <table className="dl-cards" role="table" aria-label={name} onKeyDown={onKeyDown}>
      <thead role="rowgroup">
        <tr role="row">
          {columns.map(({ title, hint, number, sort }) => (
            <th key={title} role="columnheader" scope="col" title={hint} data-number={number} aria-sort={sort?.now}>
              {sort ? (
                <button type="button" className="dl-sort" onClick={sort.turn}>
                  {title}
                </button>
              ) : (
                title
              )}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">{children}</tbody>
    </table>
  );
}

interface RowProps {
  columns: readonly Column[];
  cells: readonly React.ReactNode[]; // one per column; the first names the row
  mark?: string | undefined; // class for CSS
}

export function Row({ columns, cells, mark }: RowProps): React.JSX.Element {
  return (
    <tr role="row" data-mark={mark}>
      {cells.map((cell, index) => {
        const column = columns[index];
        const about = { 'data-title': column?.title, 'data-number': column?.number };
        return index === 0 ? (
          <th key={index} role="rowheader" scope="row" {...about}>
            {cell}
          </th>
        ) : (
          <td key={index} role="cell" {...about}>
            {cell}
          </td>
        );
      })}
    </tr>
  );
}

interface BarProps {
  part: number; // filled fraction, from 0 to 1
  mark?: number | undefined; // position of a mark, from 0 to 1: the guarantee
  name: string;
  text: string; // text below the bar
}

/** Bar of the used fraction of something, with its text below. */
export function Bar({ part, mark, name, text }: BarProps): React.JSX.Element {
  return (
    <div className="dl-use">
      <div
        className="dl-use-bar"
        role="meter"
        aria-label={name}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(100 * part)}
        aria-valuetext={text}
        data-full={part >= 1}
      >
        <div style={{ width: `${100 * part}%` }} />
        {mark !== undefined && <i style={{ left: `${100 * mark}%` }} />}
      </div>
      <span className="dl-use-text" aria-hidden="true">
        {text}
      </span>
    </div>
  );
}
