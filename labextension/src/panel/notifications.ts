/** Notifications of actions: errors, and deletions that can be undone. */

import { Notification } from '@jupyterlab/apputils';

import { messageOf } from '../service/source';

export const SHOWN_MS = 10_000; // duration of a notification; without it the notification is only counted

/** Run an action, and show its error. */
export async function told(act: () => Promise<void>): Promise<void> {
  try {
    await act();
  } catch (error) {
    Notification.error(messageOf(error), { autoClose: SHOWN_MS });
  }
}

/** Say what is deleted, as `#12 is`, with a button that restores it. */
export function sayDeleted(what: string, undo: () => void): void {
  Notification.info(`${what} deleted. This can be undone for a day.`, {
    autoClose: SHOWN_MS,
    actions: [{ label: 'Undo', callback: undo }]
  });
}
