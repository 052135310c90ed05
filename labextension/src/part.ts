/** Code that is loaded when it is first needed, and once for the page. No DOM. */

const PATIENCE_MS = 300; // time after which a wait is mentioned

/** State of a part that is not loaded: `soon` while the wait is too short to be shown, then `late`, or `failed`. */
export type Wait = 'soon' | 'late' | 'failed';

/** Part of the front end in a file of its own; a failed load is repeated by the next `load`. */
export class Part<Code> {
  private readonly _listeners = new Set<() => void>();
  private _code: Code | null = null;
  private _wait: Wait = 'soon';
  private _loading: Promise<void> | null = null;

  constructor(private readonly _import: () => Promise<Code>) {}

  /** The loaded code; null before. */
  get code(): Code | null {
    return this._code;
  }

  get wait(): Wait {
    return this._wait;
  }

  /** Call `changed` when the code is loaded, and when the wait changes; returns a function that ends this. */
  listen(changed: () => void): () => void {
    const own = (): void => changed(); // a new function, so that the same one can listen twice
    this._listeners.add(own);
    return () => void this._listeners.delete(own);
  }

  /** Load the code, unless it is loaded or loading; resolves at the end of the attempt, also of a failed one. */
  load(): Promise<void> {
    this._loading ??= this._load();
    return this._loading;
  }

  private async _load(): Promise<void> {
    const late = setTimeout(() => this._becomes('late'), this._wait === 'failed' ? 0 : PATIENCE_MS);
    try {
      this._code = await this._import();
    } catch (error) {
      console.warn('Daylight: a part of the page could not be loaded', error);
      this._loading = null;
      this._wait = 'failed';
    }
    clearTimeout(late);
    this._emit();
  }

  private _becomes(wait: Wait): void {
    this._wait = wait;
    this._emit();
  }

  private _emit(): void {
    for (const listener of this._listeners) {
      try {
        listener(); // a Set leaves out what is deleted meanwhile
      } catch (error) {
        console.error('Daylight: a part of the page cannot be shown', error); // the others can
      }
    }
  }
}
