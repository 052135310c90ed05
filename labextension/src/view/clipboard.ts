/** The clipboard, also where a page is not allowed the modern way to it. */

import { h } from './dom';

/** Copy a text; false where the browser does not let us. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // a page over plain HTTP, or a frame
  }
}

function copyBySelection(text: string): boolean {
  const focused = document.activeElement;
  const field = h('textarea', { class: 'dl-copy', 'aria-hidden': 'true' }, text);
  document.body.append(field);
  field.select();
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- there is no other way here
  const copied = document.execCommand('copy');
  field.remove();
  if (focused instanceof HTMLElement) {
    focused.focus();
  }
  return copied;
}
