/** Hyperparameters as a user types them: `lr=0.01 width=64 act='relu'`. */

export type Assigned = string | number | boolean | null;

const ASSIGNMENT = /^\s*([A-Za-z_]\w*)\s*=\s*("[^"]*"|'[^']*'|[^\s'"]+)(?=\s|$)/;
const WORDS = new Map<string, Assigned>([
  ['True', true],
  ['False', false],
  ['None', null]
]);

/** Return the assigned values by name; throws an Error for anything else. */
export function assignmentsIn(text: string): Record<string, Assigned> {
  const found: Record<string, Assigned> = {};
  for (let rest = text.trimEnd(); rest !== '';) {
    const [all, name, value] = ASSIGNMENT.exec(rest) ?? [];
    if (all === undefined || name === undefined || value === undefined) {
      throw new Error(`${rest.trim()}: write changes as lr=0.01 width=64`);
    }
    found[name] = valueIn(value);
    rest = rest.slice(all.length);
  }
  return found;
}

/** Return values as `assignmentsIn` reads them: `lr=0.01 act=relu`; those that cannot be typed are left out. */
export function assignmentsText(values: Readonly<Record<string, unknown>>): string {
  return Object.entries(values)
    .flatMap(([name, value]) => {
      const text = valueText(value);
      return text === null ? [] : [`${name}=${text}`];
    })
    .join(' ');
}

/** Return the assigned values that differ from those in `before`. */
export function changesIn(text: string, before: Readonly<Record<string, unknown>>): Record<string, Assigned> {
  return Object.fromEntries(Object.entries(assignmentsIn(text)).filter(([name, value]) => value !== before[name]));
}

function valueText(value: unknown): string | null {
  const word = [...WORDS].find(([, each]) => each === value)?.[0];
  if (word !== undefined || typeof value === 'number') {
    return word ?? String(value);
  }
  if (typeof value !== 'string') {
    return null;
  }
  const texts = [value, `'${value}'`, `"${value}"`];
  return texts.find(text => readsAs(text, value)) ?? null;
}

function readsAs(text: string, value: string): boolean {
  const [all, , found] = ASSIGNMENT.exec(`x=${text}`) ?? [];
  return all === `x=${text}` && found !== undefined && valueIn(found) === value;
}

function valueIn(text: string): Assigned {
  if (/^["']/.test(text)) {
    return text.slice(1, -1);
  }
  const known = WORDS.get(text);
  if (known !== undefined) {
    return known;
  }
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : text;
}
