/** What Python says (tests/golden/, made by tests/unit/model/test_golden.py) is said here, too. */

import type { Curves, Message, Overview, StoredReport } from '../src/api/types';
import curves from '../../tests/golden/curves.json';
import fold from '../../tests/golden/fold.json';
import text from '../../tests/golden/text.json';
import { LiveCurves } from '../src/model/curves';
import * as nextSteps from '../src/model/nextsteps';
import * as overviews from '../src/model/overview';
import * as texts from '../src/model/text';

type Says = (...given: unknown[]) => unknown;

function camel(name: string): string {
  return name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}

const functions = { ...texts, ...overviews, ...nextSteps } as unknown as Record<string, Says>;
const cases = text.flatMap(({ arguments: given, said }) =>
  Object.entries(said).map(([name, answer]) => ({
    name: camel(name),
    given,
    answer: answer as unknown
  }))
);

describe.each([...new Set(cases.map(each => each.name))])('%s says what Python says', name => {
  test.each(cases.filter(each => each.name === name))('%#', ({ given, answer }) => {
    expect(functions[name]?.(...given)).toEqual(answer);
  });
});

test.each(fold)('after $name an overview is what Python makes of it', ({ before, messages, after }) => {
  const found = (messages as Message[]).reduce(overviews.after, before as unknown as Overview);
  expect(found).toEqual(after);
});

test.each(curves)('curves of $name are what Python draws', ({ reports, curves: drawn }) => {
  const live = new LiveCurves(1);
  (reports as StoredReport[]).forEach(report => live.add(report));
  expect({ trial: 1, curves: live.curves, seq: live.seq }).toEqual(drawn as Curves);
});
