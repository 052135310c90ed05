/** As much of a document as `view/dom.ts` needs, for parts of a view that are tested without a browser. */

class FakeElement {
  children: FakeElement[] = [];
  readonly style: Record<string, string> = {};
  readonly offsetHeight = 0;
  open = false; // of a <details>
  disabled = false;
  private readonly _attributes = new Map<string, string>();
  private readonly _listeners = new Map<string, () => void>();
  private _text = '';

  constructor(readonly tag: string) {}

  get textContent(): string {
    return this._text + this.children.map(child => child.textContent).join('');
  }

  set textContent(text: string) {
    this.children = [];
    this._text = text;
  }

  get hidden(): boolean {
    return this._attributes.has('hidden');
  }

  set hidden(hidden: boolean) {
    this.toggleAttribute('hidden', hidden);
  }

  getAttribute(name: string): string | null {
    return this._attributes.get(name) ?? null;
  }

  setAttribute(name: string, value: string): void {
    this._attributes.set(name, value);
  }

  addEventListener(event: string, listener: () => void): void {
    this._listeners.set(event, listener);
  }

  /** Do what a user does: open a fold, press a button. */
  happens(event: 'toggle' | 'click'): void {
    this._listeners.get(event)?.();
  }

  toggleAttribute(name: string, on: boolean): void {
    this._attributes.delete(name);
    if (on) {
      this._attributes.set(name, '');
    }
  }

  append(...nodes: (FakeElement | string)[]): void {
    for (const node of nodes) {
      if (typeof node === 'string') {
        this._text += node;
      } else {
        this.insertBefore(node, null);
      }
    }
  }

  insertBefore(node: FakeElement, before: FakeElement | null): void {
    this.children = this.children.filter(child => child !== node);
    const place = before ? this.children.indexOf(before) : this.children.length;
    this.children.splice(place, 0, node);
    node.remove = () => (this.children = this.children.filter(child => child !== node));
  }

  remove(): unknown {
    return undefined; // it is in no element yet
  }
}

/** Give the tests of a file a document. */
export function fakeDocument(): void {
  Object.assign(globalThis, { document: { createElement: (tag: string) => new FakeElement(tag) } });
}

/** Return the texts of all elements with a tag, in their order. */
export function textsOf(root: Element, tag: string): (string | null)[] {
  return [...root.children].flatMap(child => [
    ...((child as unknown as FakeElement).tag === tag ? [child.textContent] : []),
    ...textsOf(child, tag)
  ]);
}
