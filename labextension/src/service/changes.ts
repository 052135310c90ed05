/** Notify all views of a page of changes that one of them made: an experiment that has ended has no open stream. */

type Listener = (number: number) => void;

const listeners = new Set<Listener>();

/** Call a listener with the number of each changed experiment; returns a function that unsubscribes it. */
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Notify all listeners except `by`, which made the change. */
export function announce(number: number, by?: Listener): void {
  for (const listener of [...listeners]) {
    if (listener !== by) {
      listener(number);
    }
  }
}
