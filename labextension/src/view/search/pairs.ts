/** Two hyperparameters against each other, or one against the metric: every trial, or the best per grid cell. */

import type { SearchStatus, TrialRow, Value } from '../../api/types';
import { bestRows } from '../../model/best';
import { number, valueText } from '../../model/text';
import { type Axis } from './parallel';
import { plane } from './plane';
import { ranks, rowText, shade } from './scale';
import type { Shape } from './shapes';

export function scatter(
  status: SearchStatus,
  across: Axis,
  up: Axis,
  chosen: number | null,
  width: number,
  height: number
): Shape[] {
  const { x, y, axes } = plane(width, height, across.scale, up.scale, `${up.name} over ${across.name}`);
  const rank = ranks(status.trials, status.metric);
  const order = [...status.trials].sort((one, other) => (rank.get(one.trial) ?? -1) - (rank.get(other.trial) ?? -1));
  const dots = order.flatMap((row): Shape[] => {
    const [at, above] = [across.scale.place(across.of(row)), up.scale.place(up.of(row))];
    if (at === null || above === null) {
      return [];
    }
    const props = {
      cx: x(at),
      cy: y(above),
      r: row.trial === chosen ? 5.5 : 4,
      class: `dl-dot ${row.trial === chosen ? 'dl-chosen' : ''}`,
      'data-trial': row.trial
    };
    return [{ tag: 'circle', props, style: { fill: shade(rank.get(row.trial) ?? null) }, title: rowText(status, row) }];
  });
  return [...axes, ...dots];
}

export interface Field {
  readonly column: number;
  readonly row: number;
  readonly trials: readonly TrialRow[]; // best first
}

/** Return the trials of each grid cell, best first. */
export function fields(
  status: SearchStatus,
  across: Axis,
  up: Axis
): { columns: number; rows: number; found: Field[] } {
  const [columns, rows] = [across.scale.fields, up.scale.fields];
  const found = new Map<string, { column: number; row: number; trials: TrialRow[] }>();
  for (const row of bestRows(status.trials, status.metric)) {
    const [at, above] = [across.scale.place(across.of(row)), up.scale.place(up.of(row))];
    if (at !== null && above !== null) {
      const place = { column: fieldOf(at, columns), row: fieldOf(above, rows) };
      const key = `${place.column} ${place.row}`;
      const field = found.get(key) ?? { ...place, trials: [] };
      field.trials.push(row);
      found.set(key, field);
    }
  }
  return { columns, rows, found: [...found.values()] };
}

/** Draw the best trial of each grid cell as its colour. */
export function heat(status: SearchStatus, across: Axis, up: Axis, width: number, height: number): Shape[] {
  const { columns, rows, found } = fields(status, across, up);
  const { x, y, axes } = plane(
    width,
    height,
    across.scale,
    up.scale,
    `${up.name} over ${across.name}: the best of each field`
  );
  const rank = ranks(status.trials, status.metric);
  const boxes = found.flatMap(({ column, row, trials }): Shape[] => {
    const [best] = trials;
    if (best === undefined) {
      return [];
    }
    const [left, right] = [x(column / columns), x((column + 1) / columns)];
    const [top, bottom] = [y((row + 1) / rows), y(row / rows)];
    const { metric } = status;
    return [
      {
        tag: 'rect',
        props: {
          x: left + 1,
          y: top + 1,
          width: Math.max(1, right - left - 2),
          height: Math.max(1, bottom - top - 2),
          rx: 3,
          class: 'dl-field',
          'data-trial': best.trial
        },
        style: { fill: shade(rank.get(best.trial) ?? null) },
        title:
          `best ${metric.name} ${number(best.best ?? NaN)} of ${trials.length} trial${trials.length === 1 ? '' : 's'}: ` +
          [across, up].map(axis => `${axis.name}=${shown(axis.of(best))}`).join(' ')
      }
    ];
  });
  return [...axes.filter(shape => shape.tag === 'text'), ...boxes];
}

function fieldOf(at: number, count: number): number {
  return Math.min(count - 1, Math.floor(at * count));
}

function shown(value: Value | undefined): string {
  return value === undefined ? '' : valueText(value);
}
