/** Ranges and ticks of axes, and the format of their numbers. */

type Range = [number, number] | [null, null];

const FINER = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 7]];
const FEW = 3;
const MANY = 7;

/**
 * Return the range of a linear axis, with a margin around the values; non-negative values close to 0 start at 0.
 *
 * Without values there is no range, and no numbers are shown at the axis, since they could be taken for real ones.
 */
export function plainRange(min: number | null, max: number | null): Range {
  if (min === null || max === null) {
    return [null, null];
  }
  const room = max > min ? (max - min) * 0.06 : Math.abs(max) * 0.1 || 1;
  return [min >= 0 && min - room < 0 ? 0 : min - room, max + room];
}

/** Return the range of a logarithmic axis, with a margin around positive values. */
export function logRange(min: number | null, max: number | null): Range {
  if (min === null || max === null || min <= 0) {
    return [null, null];
  }
  const room = max > min ? (max / min) ** 0.06 : 1.5;
  return [min / room, max * room];
}

/** Return a range with the ends that the user set, where they leave a range that the axis can show. */
export function within(range: Range, limits: readonly [number | null, number | null], log: boolean): Range {
  const [low, high] = [limits[0] ?? range[0], limits[1] ?? range[1]];
  return low !== null && high !== null && low < high && !(log && low <= 0) ? [low, high] : range;
}

/** Return round numbers between two, for a logarithmic axis: 1 3 10 30, or a finer or coarser series. */
export function logTicks(min: number, max: number): number[] {
  for (const digits of FINER) {
    const found = inDecades(min, max, digits);
    if (found.length >= FEW) {
      return found.filter((_, index) => index % Math.ceil(found.length / MANY) === 0);
    }
  }
  return plainTicks(min, max);
}

function inDecades(min: number, max: number, digits: readonly number[]): number[] {
  const found: number[] = [];
  for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); power += 1) {
    found.push(...digits.map(digit => Number(`${digit}e${power}`)).filter(value => value >= min && value <= max));
  }
  return found;
}

function plainTicks(min: number, max: number): number[] {
  const power = 10 ** Math.floor(Math.log10((max - min) / FEW));
  const step = power * ([1, 2, 5].find(each => (max - min) / (power * each) <= 2 * FEW) ?? 10);
  const first = Math.ceil(min / step);
  const count = Math.max(0, Math.floor(max / step) - first + 1);
  return Array.from({ length: count }, (_, index) => Number(((first + index) * step).toPrecision(12)));
}

/** Format a tick, with as many decimals as the distance to the next tick requires. */
export function tickText(value: number, step: number): string {
  const size = Math.abs(value);
  if (size >= 1e5 || step < 1e-4) {
    return value === 0 ? '0' : Number(value.toPrecision(4)).toExponential().replace('e+', 'e');
  }
  return value.toFixed(decimalsOf(step));
}

/** Return the number of decimals of a step: one for 0.1 and 0.5, two for 0.25. */
function decimalsOf(step: number): number {
  const whole = (decimals: number): boolean =>
    Math.abs(step * 10 ** decimals - Math.round(step * 10 ** decimals)) < 1e-6;
  let decimals = 0;
  while (decimals < 8 && !whole(decimals)) {
    decimals += 1;
  }
  return decimals;
}

/** Format a tick of a logarithmic axis, such as 0.003, in full. */
export function logTickText(value: number): string {
  return value >= 1e5 || value < 1e-3 ? value.toExponential().replace('e+', 'e') : String(Number(value.toPrecision(6)));
}

export const SECONDS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400
].concat([2, 5, 10, 20, 50, 100, 200, 500].map(days => days * 86400));

/** Format seconds at an axis: `45 s`, `2:30`, `1:30 h`, `2 d`. */
export function secondsText(seconds: number, step: number): string {
  const value = Math.round(seconds);
  if (step >= 86400) {
    return `${Math.round(value / 86400)} d`;
  }
  if (value < 60 && step < 60) {
    return `${value} s`;
  }
  const [large, small] = value < 3600 ? [60, 1] : [3600, 60];
  const rest = Math.floor((value % large) / small);
  return `${Math.floor(value / large)}:${String(rest).padStart(2, '0')}${large === 3600 ? ' h' : ''}`;
}
