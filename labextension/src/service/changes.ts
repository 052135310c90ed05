/** What this page has changed: no stream is open of an experiment that has ended, so its other views are told here. */

type Listener = (number: number) => void;

const listeners = new Set<Listener>();

/** Hear the number of each experiment that is changed from now on; the answer ends that. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Tell all but `by`, who knows it. */
export function announce(number: number, by?: Listener): void {
  for (const listener of [...listeners]) {
    if (listener !== by) {
      listener(number);
    }
  }
}
