/** What the first lines of a view offer and say: the menu's keys, and what is a warning or only a detail. */

import { itemByKey } from '../src/view/menu';
import { factsOf, warningsOf } from '../src/view/notes';
import { overview } from './fakes';

test('arrow keys go around the items of a menu, Home and End to its ends', () => {
  expect(['ArrowDown', 'ArrowUp', 'Home', 'End'].map(key => itemByKey(key, 0, 3))).toEqual([1, 2, 0, 2]);
  expect(['ArrowDown', 'ArrowUp'].map(key => itemByKey(key, 2, 3))).toEqual([0, 1]);
  expect(itemByKey('a', 1, 3)).toBeNull();
});

test('only warnings stand above the curves; notes that inform are details', () => {
  const noted = overview({
    warnings: ['1 rank was lost', 'packages are recorded'],
    informational: ['packages are recorded']
  });
  expect(warningsOf(noted)).toEqual(['1 rank was lost']);
  expect(factsOf(noted).Notes).toEqual(['packages are recorded']);
});
