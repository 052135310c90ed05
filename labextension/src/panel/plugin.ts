/** Plugin that adds the panel, its tabs and its commands to JupyterLab. */

import type { ILabShell, ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';

import { notebookIn } from '../document';
import { Part } from '../part';
import { opensExperiments } from '../service/opening';
import { LabSource } from '../service/request';
import type { TableOptions } from '../table/tableview';
import { Commands, COMPARE, MODELS, OPEN, REFRESH, TABLE } from './commands';
import { EndNotices, visibleViews } from './endnotices';
import { Experiments } from './experiments';
import { Panel } from './panel';
import { Memory, rememberedIn } from './remembered';
import type { LiveSettings } from './settings';
import { SingleTab } from './singletab';
import { Tabs } from './tabs';

const RANK = 150; // below the file browser and the running kernels

export interface PanelHost {
  shell: ILabShell;
  restorer: ILayoutRestorer | null;
  palette: ICommandPalette | null;
}

export function activatePanel(
  app: JupyterFrontEnd,
  settings: LiveSettings,
  { shell, restorer, palette }: PanelHost
): void {
  const { serverSettings } = app.serviceManager;
  const source = new LabSource(serverSettings);
  const memory = new Memory(() => window.localStorage, `daylight:panel:${serverSettings.baseUrl}`, rememberedIn);
  const experiments = new Experiments(source, settings, memory);
  const news = (): void => {
    experiments.refresh();
    ends.look();
  };
  const open = (number: number): void => void app.commands.execute(OPEN, { number });
  const tabs = new Tabs(shell, { source, settings, news, open });
  const options: TableOptions = {
    source,
    settings,
    baseUrl: serverSettings.baseUrl,
    act: (...asked) => experiments.act(...asked),
    open: numbers => tabs.open(numbers)
  };
  const table = new SingleTab(shell, 'daylight-experiments', [
    new Part(() => import('../table/tableview')),
    'Experiments',
    ({ TableView }, tab) => new TableView(tab.node, options, tab.isVisible)
  ]);
  const models = new SingleTab(shell, 'daylight-models', [
    new Part(() => import('../register/modelsview')),
    'Models',
    ({ ModelsView }, tab) => new ModelsView(tab.node, source, tab.isVisible)
  ]);
  const panel = new Panel(experiments, {
    open,
    compare: () => void app.commands.execute(COMPARE),
    table: () => table.open(),
    models: () => models.open()
  });
  opensExperiments(number => void app.commands.execute(OPEN, { number }));
  new Commands(app, {
    experiments,
    tabs,
    news,
    showPanel: () => shell.activateById(panel.id),
    showTable: () => table.open(),
    showModels: () => models.open()
  }).add(palette);
  const ends = new EndNotices(source, settings, {
    baseUrl: serverSettings.baseUrl,
    open,
    visible: visibleViews
  });
  void app.restored.then(() => ends.begin());
  experiments.changed.connect(() => {
    const active = experiments.list.filter(each => each.experiment.state === 'active');
    ends.follow(active.map(each => each.experiment.number));
  });
  shell.add(panel, 'left', { rank: RANK });
  restorer?.add(panel, panel.id);
  if (restorer) {
    tabs.restore(restorer, OPEN);
    table.restore(restorer, TABLE);
    models.restore(restorer, MODELS);
  }
  const look = (): void => {
    panel.notebook = notebookIn(shell.currentWidget);
    app.commands.notifyCommandChanged();
  };
  shell.currentChanged.connect(look);
  look();
}

/** Refresh the panel, if there is one, after an action elsewhere. */
export function refreshPanel(app: JupyterFrontEnd): void {
  if (app.commands.hasCommand(REFRESH)) {
    void app.commands.execute(REFRESH);
  }
}
