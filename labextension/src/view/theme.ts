/** Colours of the page for canvases, from the `--dl-*` variables of `style/view.css`. */

import { h } from './dom';

// JupyterLab; VS Code; Colab; others
const TOLD_BY = ['data-jp-theme-name', 'data-jp-theme-light', 'data-vscode-theme-kind', 'theme', 'class', 'style'];

/** Return the CSS colour with a name such as `one`, or `one deep` and `one pale` for darker and paler ones. */
export function cssColour(name: string): string {
  const [own, shade] = name.split(' ');
  const colour = `var(--dl-${own})`;
  return shade ? `color-mix(in oklab, ${colour} ${shade === 'deep' ? 68 : 55}%, var(--dl-${shade}))` : colour;
}

/** Reader of the colours below an element; calls `changed` when the theme of the page has changed. */
export class Theme {
  private readonly _known = new Map<string, string>();
  private readonly _probe = h('span', { class: 'dl-probe', 'aria-hidden': 'true' });
  private readonly _observer: MutationObserver;
  private readonly _dark = matchMedia('(prefers-color-scheme: dark)');

  constructor(
    node: HTMLElement,
    private readonly _changed: () => void
  ) {
    node.append(this._probe);
    this._observer = new MutationObserver(this._reread);
    for (const root of [document.documentElement, document.body]) {
      this._observer.observe(root, { attributes: true, attributeFilter: TOLD_BY });
    }
    this._dark.addEventListener('change', this._reread);
  }

  /** Return the current value of `--dl-<name>` in a form that canvases accept. */
  colour(name: string): string {
    const known = this._known.get(name) ?? this._read(name);
    this._known.set(name, known);
    return known;
  }

  /** Return the page's font at a size in pixels. */
  font(pixels: number): string {
    return `${pixels}px ${getComputedStyle(this._probe).fontFamily}`;
  }

  dispose(): void {
    this._observer.disconnect();
    this._dark.removeEventListener('change', this._reread);
  }

  private _read(name: string): string {
    // A variable's value may refer to other variables; a computed colour does not.
    this._probe.style.color = cssColour(name);
    return getComputedStyle(this._probe).color;
  }

  private readonly _reread = (): void => {
    const before = [...this._known];
    this._known.clear();
    if (before.some(([name, value]) => this.colour(name) !== value)) {
      this._changed();
    }
  };
}
