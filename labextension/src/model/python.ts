/** Format numbers and text as Python does, so that views and terminal show the same. */

import type { Value } from '../api/types';

const FURTHER = 40; // digits after the last one shown: enough to know whether a double lies exactly in the middle

/** Format as `f"{value:.1f}"`: of two equally near results, Python takes the even digit, and JavaScript the larger. */
export function fixed(value: number, digits: number): string {
  const middle = /^50*$/.test(value.toFixed(digits + FURTHER).slice(-FURTHER));
  return even(value.toFixed(digits), middle);
}

/** Format as `f"{value:.4g}"`. */
export function general(value: number): string {
  const [longer = ''] = value.toExponential(3 + FURTHER).split('e');
  const [mantissa = '', power = '0'] = value.toExponential(3).split('e');
  const exponent = Number(power);
  if (exponent >= -4 && exponent < 4) {
    return shortened(fixed(value, 3 - exponent));
  }
  return shortened(even(mantissa, /^50*$/.test(longer.slice(-FURTHER)))) + powerOfTen(exponent);
}

/** Round as `round(value)`. */
export function rounded(value: number): number {
  return Math.abs(value % 1) === 0.5 ? 2 * Math.round(value / 2) : Math.round(value);
}

/**
 * Format as `repr(value)`; whole floats are formatted as integers, since JavaScript does not distinguish 1.0 from 1.
 */
export function repr(value: Value): string {
  if (Array.isArray(value)) {
    return `[${value.map(each => repr(each as Value)).join(', ')}]`;
  }
  switch (typeof value) {
    case 'string':
      return quoted(value);
    case 'boolean':
      return value ? 'True' : 'False';
    case 'number':
      return numeral(value);
    case 'object':
      return value ? (notFinite(value) ?? `{${pairs(value).join(', ')}}`) : 'None';
  }
}

/** Return the text of a number such as `{"float": "inf"}`, which JSON cannot represent. */
function notFinite(value: Record<string, unknown>): string | undefined {
  const text = Object.keys(value).length === 1 ? value.float : undefined;
  return typeof text === 'string' && ['inf', '-inf', 'nan'].includes(text) ? text : undefined;
}

function pairs(value: Record<string, unknown>): string[] {
  return Object.entries(value).map(([key, inner]) => `${quoted(key)}: ${repr(inner as Value)}`);
}

/** Return the first line of a text, by all line breaks that Python recognises. */
export function firstLine(text: string): string {
  const letters = Array.from(text);
  const end = letters.findIndex(letter => '\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029'.includes(letter));
  return end < 0 ? text : letters.slice(0, end).join('');
}

// JavaScript has rounded the middle up, away from an even digit: subtract one from the last digit, which is odd.
function even(text: string, middle: boolean): string {
  const last = Number(text.at(-1));
  return middle && last % 2 === 1 ? text.slice(0, -1) + String(last - 1) : text;
}

function shortened(text: string): string {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

function powerOfTen(exponent: number): string {
  return `e${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`;
}

function numeral(value: number): string {
  const [mantissa = '', power = '0'] = value.toExponential().split('e');
  const plain = Number.isSafeInteger(value) || (Number(power) >= -4 && Number(power) < 16);
  return plain ? String(value) : mantissa + powerOfTen(Number(power));
}

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  return quote + Array.from(text, letter => escaped(letter, quote)).join('') + quote;
}

const SHORT: Record<string, string> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' };

function escaped(letter: string, quote: string): string {
  if (letter === quote) {
    return `\\${quote}`;
  }
  const short = SHORT[letter];
  if (short !== undefined || letter === ' ' || !/[\p{C}\p{Z}]/u.test(letter)) {
    return short ?? letter;
  }
  const code = letter.codePointAt(0) ?? 0;
  const [mark, width] = code < 0x100 ? ['x', 2] : code < 0x10000 ? ['u', 4] : ['U', 8];
  return `\\${mark}${code.toString(16).padStart(width, '0')}`;
}
