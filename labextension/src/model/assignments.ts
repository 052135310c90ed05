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
