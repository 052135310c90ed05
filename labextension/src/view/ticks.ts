/** Ranges and ticks of axes, and how their numbers are written. */

type Range = [number, number] | [null, null];

const FINER = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 7]];
const FEW = 3;
const MANY = 7;

/**
 * Room around values on a plain axis; what is never negative keeps its zero in sight only where it is near. Without
 * values there is no range, and nothing is written beside the axis: made-up numbers would be taken for real ones.
 */
export function plainRange(min: number | null, max: number | null): Range {
  if (min === null || max === null) {
    return [null, null];
  }
  const room = max > min ? (max - min) * 0.06 : Math.abs(max) * 0.1 || 1;
  return [min >= 0 && min - room < 0 ? 0 : min - room, max + room];
}

/** Room around positive values on a logarithmic axis. */
export function logRange(min: number | null, max: number | null): Range {
  if (min === null || max === null || min <= 0) {
    return [null, null];
  }
  const room = max > min ? (max / min) ** 0.06 : 1.5;
  return [min / room, max * room];
}

/** Round numbers between two, for a logarithmic axis: 1 3 10 30, or finer or coarser ones. */
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

/** A tick's number, with as many decimals as its neighbours need. */
export function tickText(value: number, step: number): string {
  const size = Math.abs(value);
  if (size >= 1e5 || step < 1e-4) {
    return value === 0 ? '0' : Number(value.toPrecision(4)).toExponential().replace('e+', 'e');
  }
  return value.toFixed(decimalsOf(step));
}

/** As many as it takes to write the step itself: one for 0.1 and 0.5, two for 0.25. */
function decimalsOf(step: number): number {
  const whole = (decimals: number): boolean =>
    Math.abs(step * 10 ** decimals - Math.round(step * 10 ** decimals)) < 1e-6;
  let decimals = 0;
  while (decimals < 8 && !whole(decimals)) {
    decimals += 1;
  }
  return decimals;
}

/** A number that stands for itself, such as 0.003 on a logarithmic axis. */
export function logTickText(value: number): string {
  return value >= 1e5 || value < 1e-3 ? value.toExponential().replace('e+', 'e') : String(Number(value.toPrecision(6)));
}

export const SECONDS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400
].concat([2, 5, 10, 20, 50, 100, 200, 500].map(days => days * 86400));

/** Seconds on an axis: `45 s`, `2:30`, `1:30 h`, `2 d`. */
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
