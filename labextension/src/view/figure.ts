/** Figure of one metric: name and newest values, plot, and the same data as a table. */

import { inWords, markedText, lastText, placeText } from './describe';
import { h, setText, show } from './dom';
import { Keys } from './keys';
import type { Line } from './lines';
import { type Hover, Plot } from './plot';
import type { Picture } from './plotlook';
import { Table } from './table';
import { PlotSize } from './plotsize';
import type { Theme } from './theme';
import type { Span } from './zoom';

export class Figure {
  readonly root: HTMLElement;
  private readonly _place = h('span', { class: 'dl-plot-place' });
  private readonly _axis = h('span', { class: 'dl-axis-name', 'aria-hidden': 'true' });
  private readonly _note = h('p', { class: 'dl-plot-note', hidden: true });
  private readonly _keys: Keys;
  private readonly _table: Table;
  private readonly _plot: Plot;
  private readonly _resizing: ResizeObserver;
  private _picture: Picture | null = null;
  private _hover: Hover | null = null;
  private _drawn: Picture | null = null;
  private _written: Picture | null = null;
  private _about = ''; // what is unusual about the picture
  private readonly _hidden = new Set<string>(); // labels of lines

  /**
   * `wanted` is called when the figure must be redrawn although no data has changed, `zoomed` when a part of its x axis
   * is selected, or, with null, all of it.
   */
  constructor(
    readonly metric: string,
    theme: Theme,
    { group, name }: { group: string; name: string },
    private readonly _wanted: () => void,
    zoomed: (span: Span | null) => void
  ) {
    this._keys = new Keys(label => this._toggle(label));
    const canvas = h('div', { class: 'dl-canvas' });
    const title = h('span', { class: 'dl-plot-name', title: metric }, metric);
    this._table = new Table(metric);
    this.root = h('figure', { class: 'dl-plot', 'aria-label': metric });
    const size = new PlotSize(this.root, `daylight:plot:${name}:${metric}`, () => {
      this._drawn = null;
      this._wanted();
    });
    const head = h('span', { class: 'dl-plot-title' }, title, this._place, size.button);
    this.root.append(
      h('figcaption', {}, head, this._keys.root),
      canvas,
      this._axis,
      size.range,
      this._note,
      this._table.root
    );
    this._plot = new Plot(
      canvas,
      theme,
      group,
      () => size.limits,
      hover => this._point(hover),
      zoomed
    );
    this._resizing = new ResizeObserver(entries => {
      const box = entries.at(-1)?.contentRect;
      this._plot.resize(box?.width ?? 0, box?.height ?? 0);
      this._drawn = null;
      this._wanted();
    });
    this._resizing.observe(canvas);
  }

  /** Position of the last point on the x axis. */
  get last(): number {
    return Math.max(0, ...(this._picture?.lines ?? []).map(line => line.x.at(-1) ?? 0));
  }

  /** Part of the x axis that the next drawing shows; null: all of it. */
  set span(span: Span | null) {
    this._plot.span = span;
    this._drawn = null;
  }

  /** Set the data of the figure, for the next `draw` and `write`; `note` says what is unusual about it, or is ''. */
  update(picture: Picture, note: string): void {
    this._picture = picture;
    this._about = note;
  }

  /** Update the texts around the plot (axis, note, newest values) and the table if the picture has changed. */
  write(): boolean {
    const picture = this._picture;
    if (picture && this._written !== picture) {
      this._written = picture;
      setText(this._axis, picture.axis);
      setText(this._note, this._about);
      show(this._note, this._about !== '');
      this._keys.update(picture.lines, this._hidden);
      this._say();
      this._table.update(picture);
    }
    return true;
  }

  /** Draw the plot if it has changed; return false if that is not possible now. */
  draw(): boolean {
    const picture = this._picture;
    if (picture && this._drawn !== picture) {
      const lines = this._shown();
      const drawn = this._plot.draw({ ...picture, lines }, inWords(this.metric, lines, picture.axis));
      this._drawn = drawn ? picture : null;
    }
    return this._drawn === picture;
  }

  /** Redraw after a change of the theme. */
  restyle(): void {
    this._plot.restyle();
    this._drawn = null;
  }

  dispose(): void {
    this._resizing.disconnect();
    this._table.dispose();
    this._plot.dispose();
  }

  private _shown(): readonly Line[] {
    return (this._picture?.lines ?? []).filter(line => !this._hidden.has(line.label));
  }

  private _toggle(label: string): void {
    if (!this._hidden.delete(label)) {
      this._hidden.add(label);
    }
    this._keys.update(this._picture?.lines ?? [], this._hidden);
    this._drawn = null;
    this._wanted();
  }

  private _point(hover: Hover | null): void {
    this._hover = hover;
    setText(this._place, hover && this._picture ? placeText(hover.x, this._picture.axis) : '');
    this._say();
  }

  /** Show the newest values, and over them those at the pointer. */
  private _say(): void {
    const { lines = [], axis = 'epoch' } = this._picture ?? {};
    this._keys.say(lines.map(line => lastText(line, axis)));
    const shown = this._shown();
    const pointed = (line: Line): string => {
      const at = this._hover?.nearest[shown.indexOf(line)];
      return typeof at === 'number' ? markedText(line, at) : '';
    };
    this._keys.point(this._hover ? lines.map(pointed) : null);
  }
}
