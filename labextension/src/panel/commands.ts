/** Commands of the palette, the context menu and the panel. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { ICommandPalette } from '@jupyterlab/apputils';
import {
  copyIcon,
  deleteIcon,
  editIcon,
  launchIcon,
  pauseIcon,
  refreshIcon,
  runIcon,
  tableRowsIcon,
  folderFavoriteIcon,
  stopIcon,
  undoIcon
} from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { Overview } from '../api/types';
import { editOf, labelsOf } from '../model/labels';
import type { Verb } from '../service/watch';
import { verbsFor } from '../view/verbs';
import { copy } from '../view/clipboard';
import type { Experiments } from './experiments';
import { sunIcon } from './icon';
import { MOST_COMPARED } from './list';
import { sayDeleted, SHOWN_MS, told } from './notifications';
import { askLabels, askNumber, askNumbers, mayDelete, mayStop } from './questions';
import type { Tabs } from './tabs';

export const SHOW_PANEL = 'daylight:show-panel';
export const OPEN = 'daylight:open';
export const COMPARE = 'daylight:compare';
export const REFRESH = 'daylight:refresh';
export const TABLE = 'daylight:table';
export const MODELS = 'daylight:models';
const COPY = 'daylight:copy-command';
const LINK = 'daylight:copy-link';
const BROWSE = 'daylight:open-in-browser';
const CLUSTER = 'daylight:open-cluster-page';
const CATEGORY = 'Daylight';
const BRIEF_MS = 3_000; // duration of a notification of success

type Args = ReadonlyPartialJSONObject;

/** Objects on which the commands work. */
export interface Parts {
  experiments: Experiments;
  tabs: Tabs;
  news: () => void; // an experiment may have begun or ended
  showPanel: () => void;
  showTable: () => void;
  showModels: () => void;
}

/**
 * Commands on one experiment: `args.number`, the one under the pointer, that of the active tab, or one that the user
 * enters.
 */
export class Commands {
  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _parts: Parts
  ) {}

  add(palette: ICommandPalette | null): void {
    const all: Record<string, CommandRegistry.ICommandOptions> = {
      [SHOW_PANEL]: {
        label: 'Show Daylight',
        caption: 'Show the experiments in the side panel',
        icon: sunIcon,
        execute: () => this._parts.showPanel()
      },
      [TABLE]: {
        label: 'Experiments',
        caption: 'Show all experiments in a table',
        icon: tableRowsIcon,
        execute: () => this._parts.showTable()
      },
      [MODELS]: {
        label: 'Models',
        caption: 'Show the registered models',
        icon: folderFavoriteIcon,
        execute: () => this._parts.showModels()
      },
      [OPEN]: this._open(),
      [COMPARE]: this._compare(),
      'daylight:stop': { ...this._verb('stop', 'Stop', mayStop), icon: stopIcon },
      'daylight:pause': { ...this._verb('pause', 'Pause'), icon: pauseIcon },
      'daylight:resume': { ...this._verb('resume', 'Resume'), icon: runIcon },
      'daylight:label': this._labelled(),
      'daylight:delete': { ...this._verb('delete', 'Delete', mayDelete), icon: deleteIcon },
      'daylight:undelete': { ...this._verb('undelete', 'Undelete'), icon: undoIcon },
      [COPY]: this._copy('Command', 'Copy what shows the experiment in a notebook', number => `%dl show ${number}`),
      [LINK]: this._copy('Link', 'Copy the address of the experiment', number => {
        const { address } = this._parts.experiments;
        return address ? pageOf(`${address}/experiments/${number}`) : `daylight open ${number}`;
      }),
      [BROWSE]: this._browse(),
      [CLUSTER]: {
        label: 'Open the Cluster Page',
        caption: 'Open the page of slots, queue and nodes',
        icon: launchIcon,
        isVisible: () => this._parts.experiments.address !== '',
        execute: () => openPage(`${this._parts.experiments.address}/`)
      },
      [REFRESH]: {
        label: 'Refresh Experiments',
        icon: refreshIcon,
        execute: () => this._parts.news()
      }
    };
    for (const [command, options] of Object.entries(all)) {
      this._app.commands.addCommand(command, options);
      palette?.addItem({ command, category: CATEGORY });
    }
  }

  private _open(): CommandRegistry.ICommandOptions {
    return {
      label: args => (args.pointed ? 'Open' : 'Open an Experiment…'),
      icon: launchIcon,
      isEnabled: args => this._isThere(args),
      execute: async args => {
        const numbers = Array.isArray(args.numbers) ? args.numbers.filter(each => typeof each === 'number') : [];
        // The active tab is open already: ask for another experiment.
        const number = numbers.length ? null : (this._given(args) ?? (await askNumber('Open an experiment')));
        const wanted = number === null ? numbers : [number];
        if (wanted.length) {
          this._parts.tabs.open(wanted);
        }
      }
    };
  }

  private _compare(): CommandRegistry.ICommandOptions {
    const chosen = (args: Args): number[] => {
      const pointed = this._given(args);
      const all = new Set([...this._parts.experiments.chosen, ...(pointed === null ? [] : [pointed])]);
      return [...all].sort((one, other) => one - other).slice(-MOST_COMPARED);
    };
    return {
      label: args => {
        const numbers = chosen(args);
        const several = numbers.length > 1 ? `Compare ${numbers.map(number => `#${number}`).join(', ')}` : null;
        return args.pointed ? (several ?? 'Choose to Compare') : 'Compare Experiments…';
      },
      isEnabled: args => this._isThere(args),
      execute: async args => {
        let numbers = chosen(args);
        if (args.pointed && numbers.length === 1) {
          numbers.forEach(number => this._parts.experiments.choose(number, true));
          return;
        }
        if (numbers.length < 2) {
          numbers = (await askNumbers()).slice(0, MOST_COMPARED);
        }
        if (numbers.length > 1) {
          this._parts.tabs.open(numbers);
        }
      }
    };
  }

  private _verb(
    verb: Verb,
    word: string,
    sure?: (number: number) => Promise<boolean>
  ): CommandRegistry.ICommandOptions {
    const asks = sure !== undefined;
    const enabled = (args: Args): boolean => {
      const number = this._numberOf(args);
      const known = number === null ? null : this._find(number);
      return (
        this._isThere(args) && (known === null || verbsFor({ overview: known, connection: 'live' }).includes(verb))
      );
    };
    return {
      label: args => (args.pointed ? `${word}${asks ? '…' : ''}` : this._label(word, asks)),
      caption: CAPTIONS[verb],
      isEnabled: enabled,
      isVisible: args => !args.pointed || verb === 'stop' || enabled(args),
      execute: async args => {
        const number = this._numberOf(args) ?? (await askNumber(`${word} an experiment`));
        if (number !== null && (!sure || (await sure(number)))) {
          await this._act(number, verb);
        }
      }
    };
  }

  private _labelled(): CommandRegistry.ICommandOptions {
    return {
      label: args => (args.pointed ? 'Edit…' : this._label('Edit', true)),
      caption: 'Change name, tags and note of an experiment',
      icon: editIcon,
      isEnabled: args => this._isThere(args),
      execute: async args => {
        const number = this._numberOf(args) ?? (await askNumber('Edit an experiment'));
        if (number !== null) {
          await told(() => this._edit(number));
        }
      }
    };
  }

  private async _edit(number: number): Promise<void> {
    const before = labelsOf((await this._parts.experiments.look(number)).experiment);
    const after = await askLabels(number, before);
    const edit = after && editOf(before, after);
    if (edit) {
      await this._parts.experiments.act(number, 'label', edit);
    }
  }

  private _copy(what: string, caption: string, textFor: (number: number) => string): CommandRegistry.ICommandOptions {
    return {
      label: args => (args.pointed ? `Copy ${what}` : this._label(`Copy the ${what} of`)),
      caption,
      icon: copyIcon,
      isEnabled: args => this._isThere(args),
      execute: async args => {
        const number = this._numberOf(args) ?? (await askNumber(`Copy the ${what.toLowerCase()} of an experiment`));
        if (number === null) {
          return;
        }
        const text = textFor(number);
        if (await copy(text)) {
          Notification.success(`Copied: ${text}`, { autoClose: BRIEF_MS });
        } else {
          Notification.info(`This page may not use the clipboard: ${text}`, { autoClose: SHOWN_MS });
        }
      }
    };
  }

  private _browse(): CommandRegistry.ICommandOptions {
    return {
      label: args => (args.pointed ? 'Open in the Browser' : this._label('Open in the Browser')),
      caption: "Open the experiment's page, to share its address",
      icon: launchIcon,
      isEnabled: args => this._isThere(args),
      isVisible: () => this._parts.experiments.address !== '',
      execute: async args => {
        const number = this._numberOf(args) ?? (await askNumber('Open an experiment in the browser'));
        if (number !== null) {
          openPage(`${this._parts.experiments.address}/experiments/${number}`);
        }
      }
    };
  }

  private _act(number: number, verb: Verb): Promise<void> {
    return told(async () => {
      await this._parts.experiments.act(number, verb);
      if (verb === 'delete') {
        sayDeleted(`#${number} is`, () => void this._act(number, 'undelete'));
      }
    });
  }

  /** Label of a command in the palette, with the number of its experiment if that is already determined. */
  private _label(words: string, asks = false): string {
    const number = this._parts.tabs.current;
    return number === null ? `${words} an Experiment…` : `${words} #${number}${asks ? '…' : ''}`;
  }

  /** Return whether a command is available: one of the context menu requires an experiment under the pointer. */
  private _isThere(args: Args): boolean {
    return !args.pointed || this._given(args) !== null;
  }

  private _numberOf(args: Args): number | null {
    return this._given(args) ?? (args.pointed ? null : this._parts.tabs.current);
  }

  private _given(args: Args): number | null {
    if (!args.pointed) {
      return typeof args.number === 'number' ? args.number : null;
    }
    const node = this._app.contextMenuHitTest(each => each.classList.contains('dl-item'));
    return Number(node?.dataset.number) || null;
  }

  private _find(number: number): Overview | null {
    return this._parts.experiments.find(number) ?? this._parts.tabs.find(number);
  }
}

const CAPTIONS: Record<Verb, string> = {
  stop: 'Stop an experiment for good',
  pause: 'Let an experiment save a checkpoint and give its slots back',
  resume: 'Let a paused experiment go on',
  delete: 'Delete an experiment that has ended; this can be undone for a day',
  undelete: 'Bring a deleted experiment back'
};

/** Open a page of the service, by its URL or its path on this host. */
function openPage(address: string): void {
  window.open(pageOf(address), '_blank', 'noopener');
}

/** Return the URL of a page of the service, by its URL or its path on this host. */
function pageOf(address: string): string {
  return new URL(address, window.location.origin).href;
}
