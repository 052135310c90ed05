/** Let the browser save a file. */

import { h } from './dom';

/** Save `content` under a name. It is always offered as plain bytes, so that the browser does not run it. */
export function download(name: string, content: BlobPart): void {
  const url = URL.createObjectURL(new Blob([content], { type: 'application/octet-stream' }));
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 0);
}
