/** Draw at most once per frame, and detect whether an element is visible. */

/** Scheduler that calls `draw` once in the next frame, however often it was requested. */
export class Frame {
  private _handle: number | null = null;

  constructor(private readonly _draw: () => void) {}

  request(): void {
    this._handle ??= requestAnimationFrame(() => {
      this._handle = null;
      this._draw();
    });
  }

  dispose(): void {
    if (this._handle !== null) {
      cancelAnimationFrame(this._handle);
    }
  }
}

/** Observer of an element's visibility; `appeared` is called when it becomes visible. */
export class Sight {
  visible = true; // until the observer reports
  private readonly _observer: IntersectionObserver;

  constructor(node: Element, appeared: () => void) {
    this._observer = new IntersectionObserver(entries => {
      const before = this.visible;
      this.visible = entries.at(-1)?.isIntersecting ?? before;
      if (this.visible && !before) {
        appeared();
      }
    });
    this._observer.observe(node);
  }

  dispose(): void {
    this._observer.disconnect();
  }
}
