/** Choices of what the listed experiments are grouped by. */

/** What experiments are grouped by; '' for a plain list. Hyperparameters are named `lr` as `param:lr`. */
export type GroupBy = '' | 'tag' | 'state' | 'notebook' | `param:${string}`;

const PLAIN: readonly GroupBy[] = ['', 'tag', 'state', 'notebook'];

/** Return a stored choice; '' for any text that is no choice. */
export function groupByIn(text: unknown): GroupBy {
  const plain = PLAIN.find(each => each === text);
  return plain ?? (typeof text === 'string' && text.startsWith('param:') ? (text as GroupBy) : '');
}
