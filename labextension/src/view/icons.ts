/** Icons of buttons, with the shapes and the size of JupyterLab's; they are drawn here for views outside of it, too. */

import { h } from './dom';
import { paint, type Shape } from './search/shapes';

const SVG = 'http://www.w3.org/2000/svg';

export type Icon = 'pause' | 'resume' | 'stop' | 'more' | 'close' | 'wide';

const ICONS: Readonly<Record<Icon, readonly Shape[]>> = {
  pause: [6, 14].map(x => ({ tag: 'rect', props: { x, y: 5, width: 4, height: 14 } })),
  resume: [{ tag: 'path', props: { d: 'M8 5L19 12L8 19Z' } }],
  stop: [{ tag: 'rect', props: { x: 6, y: 6, width: 12, height: 12 } }],
  more: [5, 12, 19].map(cx => ({ tag: 'circle', props: { cx, cy: 12, r: 2 } })),
  close: [{ tag: 'path', props: { d: 'M6 6L18 18M18 6L6 18', stroke: 'currentcolor', 'stroke-width': 2 } }],
  wide: [{ tag: 'path', props: { d: 'M2 12L8 6V11H16V6L22 12L16 18V13H8V18Z' } }]
};

/** Create a button with an icon; its name is its tooltip, too. */
export function iconButton(name: string, icon: Icon, pressed: () => void): HTMLButtonElement {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  paint(svg, ICONS[icon]);
  const look = { type: 'button', class: 'dl-button dl-glyph-button', 'aria-label': name, title: name };
  return h('button', { ...look, onclick: pressed }, svg);
}
