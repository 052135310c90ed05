/** Card of the launcher and command of the palette that open a copy of the quickstart notebook. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { ICommandPalette } from '@jupyterlab/apputils';
import type { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import type { ILauncher } from '@jupyterlab/launcher';

import { sunIcon } from '../panel/icon';
import { LabSource } from '../service/request';
import { messageOf } from '../service/source';
import { copyInto } from './copy';

export const QUICKSTART = 'daylight:quickstart';
const CATEGORY = 'Daylight';
const SHOWN_MS = 10_000; // duration of a notification; without it the notification is only counted

/** Objects to which the command is added; they also provide the folder if the launcher does not. */
export interface QuickstartHost {
  launcher: ILauncher | null;
  palette: ICommandPalette | null;
  browser: IDefaultFileBrowser | null;
}

export function addQuickstart(app: JupyterFrontEnd, { launcher, palette, browser }: QuickstartHost): void {
  const { contents, serverSettings } = app.serviceManager;
  const source = new LabSource(serverSettings);
  app.commands.addCommand(QUICKSTART, {
    label: 'Quickstart Notebook',
    caption: 'Open a notebook that trains, kills a worker and goes on',
    icon: sunIcon,
    execute: async args => {
      const folder = typeof args.cwd === 'string' ? args.cwd : (browser?.model.path ?? '');
      try {
        const path = await copyInto(contents, folder, await source.quickstart());
        await app.commands.execute('docmanager:open', { path });
      } catch (error) {
        const said = messageOf(error);
        Notification.error(`The quickstart could not be copied into ${folder || 'the top folder'}: ${said}`, {
          autoClose: SHOWN_MS
        });
      }
    }
  });
  palette?.addItem({ command: QUICKSTART, category: CATEGORY });
  launcher?.add({ command: QUICKSTART, category: CATEGORY });
}
