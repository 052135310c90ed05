/** Create elements once and update them in place. Text is inserted as text, never as HTML. */

export type Child = Node | string | null;
export type Props = Record<string, string | number | boolean | ((event: Event) => void)>;

/** Create an element with attributes, listeners (`onclick: ...`) and children. */
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

/** Create a button; `quiet` ones have no border. */
export function button(name: string, pressed: () => void, look = ''): HTMLButtonElement {
  return h('button', { type: 'button', class: `dl-button ${look}`.trim(), onclick: pressed }, name);
}

/** Create a box with a name that scrolls what is wider or higher, also by keyboard. */
export function wide(name: string, ...children: Child[]): HTMLElement {
  return h('div', { class: 'dl-wide', tabindex: 0, role: 'group', 'aria-label': name }, ...children);
}

/** Create the head of a table. */
export function heads(names: readonly string[]): HTMLElement {
  return h('thead', {}, h('tr', {}, ...names.map(name => h('th', { scope: 'col' }, name))));
}

/** Create a row of a table. */
export function cells(values: readonly Child[]): HTMLElement {
  return h('tr', {}, ...values.map(value => h('td', {}, value)));
}

/** Set a node's text only if it differs, since setting it would disturb a selection or a screen reader. */
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

/** Make `parent` contain one child per text; existing children are reused. */
export function setLines(parent: Element, texts: readonly string[], make: () => Element): void {
  while (parent.children.length > texts.length) {
    parent.lastElementChild?.remove();
  }
  texts.forEach((text, index) => {
    const child = parent.children[index] ?? parent.appendChild(make());
    setText(child, text);
  });
}

/** Make `parent` contain exactly these children in this order; children in the right place are not moved. */
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

/** Return a function that returns whether any of its arguments has changed since its last call. */
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

/** Stop the propagation of keys that operate Daylight's controls, since a notebook would handle them as its own. */
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
