/** Poller that requests data while it changes and is visible, one request at a time. */

export class Polling<Answer> {
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _requesting = false;
  private _wanted = false;
  private _askedAt = -Infinity; // by a monotonic clock
  private _disposed = false;

  /** `ask` requests the data; if it throws, `failed` is called. Requests are at least `every` milliseconds apart. */
  constructor(
    private readonly _ask: () => Promise<Answer>,
    private readonly _answered: (answer: Answer) => void,
    private readonly _failed: (error: unknown) => void,
    private readonly _every: number
  ) {}

  /** Request new data: as soon as `every` milliseconds have passed since the last request; with `now`, at once. */
  want(now = false): void {
    this._wanted = true;
    if (this._requesting || this._disposed) {
      return;
    }
    clearTimeout(this._timer);
    const wait = now ? 0 : Math.max(0, this._askedAt + this._every - performance.now());
    this._timer = setTimeout(() => void this._go(), wait);
  }

  private _goOn(): void {
    if (this._wanted) {
      this.want();
    }
  }

  dispose(): void {
    this._disposed = true;
    clearTimeout(this._timer);
  }

  private async _go(): Promise<void> {
    this._requesting = true;
    this._wanted = false;
    this._askedAt = performance.now();
    try {
      const answer = await this._ask();
      if (!this._disposed) {
        this._answered(answer);
      }
    } catch (error) {
      if (!this._disposed) {
        this._failed(error);
      }
    }
    this._requesting = false;
    this._goOn();
  }
}
