/** Daylight's plugins: a renderer for outputs, also in Jupyter Notebook, JupyterLab's side panel, the quickstart. */

import { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { isWritable, notebookIn, replaceCell } from './document';
import { rendererFactory, VIEW } from './mime';
import { offerFactory } from './offer';
import { activatePanel, refreshPanel } from './panel/plugin';
import { LiveSettings } from './panel/settings';
import { addQuickstart } from './quickstart/plugin';
import { LabSource } from './service/request';
import type { UnsavedViews } from './unsaved';

const PANEL = 'daylight:panel';

const output: JupyterFrontEndPlugin<void> = {
  id: 'daylight:output',
  description: 'Shows experiments below cells.',
  autoStart: true,
  requires: [IRenderMimeRegistry],
  optional: [ISettingRegistry],
  activate: (app: JupyterFrontEnd, rendermime: IRenderMimeRegistry, registry: ISettingRegistry | null) => {
    const { serverSettings } = app.serviceManager;
    const source = new LabSource(serverSettings);
    const settings = followed(registry);
    const key = `daylight:unsaved:${serverSettings.baseUrl}`;
    let unsaved: UnsavedViews | null = null;
    const use = async (act: (unsaved: UnsavedViews) => unknown): Promise<void> => {
      await VIEW.load();
      if (VIEW.code) {
        unsaved ??= new VIEW.code.UnsavedViews(
          app,
          (number, captured) => source.bundle(number, captured),
          () => window.localStorage,
          key
        );
        await act(unsaved);
      }
    };
    const restore = (): void => {
      const { currentWidget } = app.shell;
      if (notebookIn(currentWidget) !== null && isStored(key)) {
        void use(views => views.restore(currentWidget));
      }
    };
    app.shell.currentChanged?.connect(restore);
    void app.restored.then(restore);
    rendermime.addFactory(
      rendererFactory({
        source,
        settings,
        writable: node => isWritable(app, node),
        appeared: (node, saved) => void use(views => views.note(node, saved)),
        news: () => refreshPanel(app)
      })
    );
    rendermime.addFactory(offerFactory((node, text) => replaceCell(app, node, text)));
  }
};

const panel: JupyterFrontEndPlugin<void> = {
  id: PANEL,
  description: 'Lists experiments in the side panel.',
  autoStart: true,
  optional: [ILabShell, ILayoutRestorer, ICommandPalette, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    shell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    registry: ISettingRegistry | null
  ) => {
    // Jupyter Notebook has no tabs for experiments: only outputs show them.
    if (shell) {
      activatePanel(app, followed(registry), { shell, restorer, palette });
    }
  }
};

const quickstart: JupyterFrontEndPlugin<void> = {
  id: 'daylight:quickstart',
  description: 'Opens a copy of the quickstart notebook.',
  autoStart: true,
  optional: [ILauncher, ICommandPalette, IDefaultFileBrowser],
  activate: (
    app: JupyterFrontEnd,
    launcher: ILauncher | null,
    palette: ICommandPalette | null,
    browser: IDefaultFileBrowser | null
  ) => addQuickstart(app, { launcher, palette, browser })
};

/** Return whether the browser has stored something under a key; some browsers store nothing. */
function isStored(key: string): boolean {
  try {
    return window.localStorage.getItem(key) !== null;
  } catch {
    return false;
  }
}

function followed(registry: ISettingRegistry | null): LiveSettings {
  const settings = new LiveSettings();
  registry?.load(PANEL).then(
    found => settings.follow(found),
    (error: unknown) => console.warn('Daylight: there are no settings', error)
  );
  return settings;
}

export default [output, panel, quickstart];
