/** A file that the browser saves. */

import { h } from './dom';

/** Save `content` under a name. Whatever it is, to the browser it is bytes: nothing of it may run here. */
export function download(name: string, content: BlobPart): void {
  const url = URL.createObjectURL(new Blob([content], { type: 'application/octet-stream' }));
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 0);
}
