/** Two axes with their numbers, and the positions of points between them. */

import type { Scale } from './scale';
import { round, type Shape, text } from './shapes';

const [LEFT, RIGHT, TOP, BOTTOM] = [44, 10, 8, 32];
const CHARACTER = 6.2; // approximate width in pixels

export interface Plane {
  readonly x: (share: number) => number;
  readonly y: (share: number) => number;
  readonly axes: readonly Shape[];
}

/** Draw the axes; `title` is the text below the horizontal axis. */
export function plane(width: number, height: number, across: Scale, up: Scale, title: string): Plane {
  const left = Math.max(LEFT, ...up.ticks.map(tick => Math.min(96, tick.text.length * CHARACTER + 12)));
  const x = (share: number): number => round(left + share * (width - left - RIGHT));
  const y = (share: number): number => round(height - BOTTOM - share * (height - TOP - BOTTOM));
  const rows = up.ticks.flatMap(({ at, text: said }) => [
    { tag: 'line', props: { x1: left, x2: width - RIGHT, y1: y(at), y2: y(at), class: 'dl-grid' } } as const,
    text(left - 6, y(at) + 3.5, said.slice(0, 14), { 'text-anchor': 'end', class: 'dl-tick' })
  ]);
  const columns = apart(across.ticks, x).map(({ at, text: said }) =>
    text(x(at), height - BOTTOM + 14, said.slice(0, 14), { 'text-anchor': 'middle', class: 'dl-tick' })
  );
  const name = text(left + (width - left - RIGHT) / 2, height - 4, title, {
    'text-anchor': 'middle',
    class: 'dl-axis-title'
  });
  return { x, y, axes: [...rows, ...columns, name] };
}

/** Return the ticks whose labels do not overlap. */
function apart(ticks: Scale['ticks'], x: (share: number) => number): Scale['ticks'] {
  let end = -Infinity;
  return ticks.filter(tick => {
    const half = (Math.min(14, tick.text.length) * CHARACTER) / 2 + 4;
    const fits = x(tick.at) - half >= end;
    end = fits ? x(tick.at) + half : end;
    return fits;
  });
}
