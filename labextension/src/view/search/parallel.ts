/** Parallel coordinates: an axis per hyperparameter, a line per trial, and brushes that select trials. */

import type { Space, SearchStatus, TrialRow, Value } from '../../api/types';
import { metricScale, paramScale, ranks, rowText, type Scale, shade } from './scale';
import { pathOf, round, type Shape, text } from './shapes';

const [TOP, BOTTOM, LEFT, RIGHT] = [26, 14, 52, 30];
const MOST = 12; // maximum number of axes
const CHARACTER = 6.2;

/** Selected part of each axis: lower and upper bound, each from 0 to 1. */
export type Brushes = ReadonlyMap<string, readonly [number, number]>;

export interface Axis {
  readonly name: string;
  readonly scale: Scale;
  readonly of: (row: TrialRow) => Value | undefined;
}

/** Return the axes: the hyperparameters of the search, and last the metric. */
export function axesOf(status: SearchStatus, space: Space): Axis[] {
  const params = status.params.slice(0, MOST - 1).map(name => {
    const values = status.trials.flatMap(row => (row.params[name] === undefined ? [] : [row.params[name]]));
    return { name, scale: paramScale(name, space, values), of: (row: TrialRow) => row.params[name] };
  });
  const scale = metricScale(
    status.trials.map(row => row.best),
    status.metric
  );
  return [...params, { name: status.metric.name, scale, of: row => row.best ?? undefined }];
}

/** Return whether a trial lies within all brushes. */
export function within(row: TrialRow, axes: readonly Axis[], brushes: Brushes): boolean {
  return axes.every(axis => {
    const brush = brushes.get(axis.name);
    const at = brush ? axis.scale.place(axis.of(row)) : null;
    return brush === undefined || (at !== null && at >= brush[0] && at <= brush[1]);
  });
}

/** Return the positions of the axes, and the conversion between heights and values. */
export function geometry(count: number, width: number, height: number): Geometry {
  const gap = (width - LEFT - RIGHT) / Math.max(1, count - 1);
  const length = height - TOP - BOTTOM;
  return {
    x: index => round(LEFT + index * gap),
    y: share => round(TOP + (1 - share) * length),
    share: y => Math.min(1, Math.max(0, 1 - (y - TOP) / length)),
    nearest: x => Math.min(count - 1, Math.max(0, Math.round((x - LEFT) / gap))),
    gap
  };
}

export interface Geometry {
  readonly x: (index: number) => number;
  readonly y: (share: number) => number;
  readonly share: (y: number) => number;
  readonly nearest: (x: number) => number;
  readonly gap: number;
}

export function parallel(
  status: SearchStatus,
  axes: readonly Axis[],
  brushes: Brushes,
  chosen: number | null,
  width: number,
  height: number
): Shape[] {
  const place = geometry(axes.length, width, height);
  const rank = ranks(status.trials, status.metric);
  const order = [...status.trials].sort((one, other) => (rank.get(one.trial) ?? -1) - (rank.get(other.trial) ?? -1));
  const lines = order.map((row): Shape => {
    const points = axes.flatMap((axis, index): [number, number][] => {
      const at = axis.scale.place(axis.of(row));
      return at === null ? [] : [[place.x(index), place.y(at)]]; // without the parameter: skip this axis
    });
    const faded = within(row, axes, brushes) ? '' : 'dl-faded';
    const stroke = row.trial === chosen ? 'var(--dl-chosen)' : shade(rank.get(row.trial) ?? null);
    return {
      tag: 'path',
      props: {
        d: pathOf(points),
        class: `dl-line ${faded} ${row.trial === chosen ? 'dl-chosen' : ''}`,
        'data-trial': row.trial
      },
      style: { stroke },
      title: rowText(status, row)
    };
  });
  return [...lines, ...axes.flatMap((axis, index) => drawn(axis, index, place, brushes.get(axis.name)))];
}

function drawn(axis: Axis, index: number, place: Geometry, brush: readonly [number, number] | undefined): Shape[] {
  const x = place.x(index);
  const most = Math.max(4, Math.floor(place.gap / CHARACTER) - 1);
  const name = axis.name.length > most ? `${axis.name.slice(0, most - 1)}\u2026` : axis.name;
  const line: Shape = { tag: 'line', props: { x1: x, x2: x, y1: place.y(0), y2: place.y(1), class: 'dl-axis' } };
  const ticks = axis.scale.ticks.map(({ at, text: said }) =>
    text(x - 5, place.y(at) + 3.5, said.slice(0, 8), { 'text-anchor': 'end', class: 'dl-tick dl-haloed' })
  );
  const title = { ...text(x, 14, name, { 'text-anchor': 'middle', class: 'dl-axis-name' }), title: axis.name };
  const handle: Shape = {
    tag: 'rect',
    props: {
      x: x - 10,
      y: place.y(1),
      width: 20,
      height: place.y(0) - place.y(1),
      class: 'dl-handle',
      'data-axis': index
    },
    title: `drag along ${axis.name} to choose among the trials; click to choose all again`
  };
  const [low, high] = brush ?? [0, 0];
  const box: Shape = {
    tag: 'rect',
    props: { x: x - 6, y: place.y(high), width: 12, height: place.y(low) - place.y(high), class: 'dl-brush' }
  };
  return [line, ...ticks, title, ...(brush ? [box] : []), handle];
}
