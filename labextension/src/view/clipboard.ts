/** Copy to the clipboard, also on pages that may not use the asynchronous clipboard API. */

import { h } from './dom';

/** Copy a text; return false if the browser refuses. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // on a page over plain HTTP, or in a frame
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
