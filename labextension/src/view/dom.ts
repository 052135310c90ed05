/** Elements that are made once and changed in place. Text goes in as text, never as HTML. */

export type Child = Node | string | null;
export type Props = Record<string, string | number | boolean | ((event: Event) => void)>;

/** An element with attributes, listeners (`onclick: ...`) and children. */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === 'function') {
      node.addEventListener(name.slice(2), value);
    } else if (typeof value === 'boolean') {
      node.toggleAttribute(name, value);
    } else {
      node.setAttribute(name, String(value));
    }
  }
  node.append(...children.filter(child => child !== null));
  return node;
}

/** A button of ours; `quiet` ones have no border. */
export function button(name: string, pressed: () => void, look = ''): HTMLButtonElement {
  return h('button', { type: 'button', class: `dl-button ${look}`.trim(), onclick: pressed }, name);
}

/** Say something else, if it is something else: what is selected or read aloud is not disturbed otherwise. */
export function setText(node: Node, text: string): void {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

export function setAttribute(node: Element, name: string, value: string): void {
  if (node.getAttribute(name) !== value) {
    node.setAttribute(name, value);
  }
}

export function show(node: HTMLElement, shown: boolean): void {
  if (node.hidden === shown) {
    node.hidden = !shown;
  }
}

/** Let `parent` hold one child a text; those that stay are the same elements. */
export function setLines(parent: Element, texts: readonly string[], make: () => Element): void {
  while (parent.children.length > texts.length) {
    parent.lastElementChild?.remove();
  }
  texts.forEach((text, index) => {
    const child = parent.children[index] ?? parent.appendChild(make());
    setText(child, text);
  });
}

/** Let `parent` hold exactly these children in this order; what stands right is not touched. */
export function setChildren(parent: Element, children: readonly Element[]): void {
  const wanted = new Set(children);
  for (const child of [...parent.children]) {
    if (!wanted.has(child)) {
      child.remove();
    }
  }
  children.forEach((child, index) => {
    if (parent.children[index] !== child) {
      parent.insertBefore(child, parent.children[index] ?? null);
    }
  });
}

/** Says whether any of these things is another one than the last time it was asked. */
export function changes(): (...things: unknown[]) => boolean {
  let before: unknown[] | null = null;
  return (...things) => {
    const same = before?.every((thing, index) => Object.is(thing, things[index])) ?? false;
    before = things;
    return !same;
  };
}

const OURS = new Set([
  'Enter',
  ' ',
  'Escape',
  'ArrowUp',
  'ArrowDown',
  'ArrowLeft',
  'ArrowRight',
  'Home',
  'End',
  'PageUp',
  'PageDown'
]);

/** Keys that work our controls go no further: to a notebook around us they would mean another cell. */
export function keepKeys(event: Event): void {
  if (event instanceof KeyboardEvent) {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    const written = [HTMLSelectElement, HTMLInputElement, HTMLTextAreaElement].some(
      kind => event.target instanceof kind
    );
    if (plain && (written || (!event.shiftKey && OURS.has(event.key)))) {
      event.stopPropagation();
    }
  }
}
