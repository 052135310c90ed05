/** Marks drawn over the lines of a plot: crosses where a value is not finite, rings at the best values. */

import type uPlot from 'uplot';

const CROSS = 3; // half the size of a cross, in pixels
const RING = 4.5; // radius, in pixels

/** Draw a cross at the bottom of each of the ascending positions. */
export function drawCrosses(plot: uPlot, positions: readonly number[], colour: string): void {
  const { ctx, bbox } = plot;
  const half = CROSS * devicePixelRatio;
  const y = bbox.top + bbox.height - 2 * half;
  const places = positions.map(each => plot.valToPos(each, 'x', true)).filter(x => isWithin(x, bbox));
  ctx.save();
  ctx.beginPath();
  for (const x of apart(places, 2 * half)) {
    ctx.moveTo(x - half, y - half);
    ctx.lineTo(x + half, y + half);
    ctx.moveTo(x - half, y + half);
    ctx.lineTo(x + half, y - half);
  }
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.stroke();
  ctx.restore();
}

/** Draw a ring around a point. */
export function drawRing(plot: uPlot, [x, y]: readonly [number, number], colour: string, paper: string): void {
  const { ctx, bbox } = plot;
  const [left, top] = [plot.valToPos(x, 'x', true), plot.valToPos(y, 'y', true)];
  if (!isWithin(left, bbox) || !Number.isFinite(top)) {
    return;
  }
  ctx.save();
  ctx.beginPath();
  ctx.arc(left, top, RING * devicePixelRatio, 0, 2 * Math.PI);
  ctx.fillStyle = paper;
  ctx.fill();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.stroke();
  ctx.restore();
}

function isWithin(x: number, { left, width }: uPlot.BBox): boolean {
  return x >= left - 1 && x <= left + width + 1;
}

/** Return those of the ascending positions that are at least `distance` apart, so that marks do not overlap. */
function apart(places: readonly number[], distance: number): number[] {
  let before = -Infinity;
  return places.filter(place => {
    const kept = place - before >= distance;
    before = kept ? place : before;
    return kept;
  });
}
