/** The view and the panel say the same of an experiment, in each of its states, as Python says of it. */

import { createElement } from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import type { Overview } from '../src/api/types';
import text from '../../tests/golden/text.json';
import { Item } from '../src/panel/item';
import type { Look } from '../src/service/watch';
import { Head } from '../src/view/head';
import { fakeDocument } from './fakedom';
import { curves, overview, report, trial } from './fakes';

interface Said {
  readonly state_of: string;
  readonly state_text: string;
  readonly result_text: string;
}

const NOTHING = (): void => undefined;
const cases = text
  .filter(each => 'state_text' in each.said)
  .map(each => ({ overview: each.arguments[0] as unknown as Overview, said: each.said as unknown as Said }));

beforeAll(fakeDocument);

test.each(cases)('$said.state_text', ({ overview, said }) => {
  const { number, name } = overview.experiment;
  const shown = { overview, curves: curves(report(1)).curves, captured: [], search: null };
  const look: Look = { number, connection: 'live', heard: true, error: null, at: 100, trial: 1, ...shown };
  const head = new Head();
  head.update(look);
  expect(head.root.textContent).toContain(`#${number}`);
  expect(head.root.textContent).toContain(name);
  expect(head.root.textContent).toContain(said.state_text);

  const item = createElement(Item, { overview, now: 100, chosen: false, open: NOTHING, choose: NOTHING });
  const markup = renderToStaticMarkup(item);
  const panel = markup.replace(/<[^>]*>/g, '');
  const escaped = (plain: string): string => renderToStaticMarkup(createElement('p', {}, plain)).slice(3, -4);
  expect(panel).toContain(`#${number} ${escaped(name)}`);
  expect(panel).toContain(escaped(said.state_text));
  expect(panel).toContain(escaped(said.result_text));
  expect(markup).toContain(`data-state="${said.state_of}"`);
});

test('a screen reader hears of another state, and of no phase of the same one', () => {
  const head = new Head();
  const chip = head.root.children[1]?.children[0];
  const told = (shown: Overview): (string | null | undefined)[] => {
    const nothing = { curves: [], captured: [], search: null, error: null };
    head.update({ number: 1, connection: 'live', heard: true, at: 100, trial: 1, overview: shown, ...nothing });
    return [chip?.textContent, chip?.getAttribute('aria-live')];
  };
  const starting = overview({ trials: [trial({ state: 'starting' })] });
  for (const [phase, live] of [
    ['importing torch (5 s)', 'polite'],
    ['importing torch (10 s)', 'off']
  ] as const) {
    expect(told({ ...starting, starting: phase })).toEqual([phase, live]);
  }
  expect(told(overview({ trials: [trial({ state: 'running' })] }))).toEqual(['running', 'polite']);
});
