/** Dialogs before an action. */

import { Dialog, InputDialog, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import type { Labels } from '../model/labels';
import { LabelFields } from '../view/labels';
import { DELETE, STOP, type QuestionText } from '../view/question';
import { numbersIn } from './list';

export function mayStop(number: number): Promise<boolean> {
  return isSure(`Stop #${number} for good?`, STOP);
}

export function mayDelete(number: number): Promise<boolean> {
  return isSure(`Delete #${number}?`, DELETE);
}

export async function isSure(title: string, { text, keep, act }: QuestionText): Promise<boolean> {
  const answer = await showDialog({
    title,
    body: text,
    buttons: [Dialog.cancelButton({ label: keep }), Dialog.warnButton({ label: act })],
    defaultButton: 0
  });
  return answer.button.accept;
}

export async function askNumber(title: string): Promise<number | null> {
  const label = 'Its number';
  const { value } = await InputDialog.getText({
    title,
    label,
    placeholder: '12',
    okLabel: title.split(' ')[0] ?? 'OK'
  });
  return numbersIn(value ?? '')[0] ?? null;
}

export async function askNumbers(): Promise<number[]> {
  const title = 'Compare experiments';
  const { value } = await InputDialog.getText({
    title,
    label: 'Their numbers',
    placeholder: '12 15',
    okLabel: 'Compare'
  });
  return numbersIn(value ?? '');
}

/** Body of a dialog with the fields for labels, whose value the dialog returns. */
class LabelBody extends Widget {
  constructor(private readonly _fields: LabelFields) {
    super({ node: _fields.root });
  }

  getValue(): Labels {
    return this._fields.labels;
  }
}

/** Let the user edit the labels of an experiment in a dialog, and return them; null if it is cancelled. */
export async function askLabels(number: number, labels: Labels): Promise<Labels | null> {
  const fields = new LabelFields();
  fields.labels = labels;
  const answer = await showDialog({
    title: `Edit #${number}`,
    body: new LabelBody(fields),
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Save' })],
    focusNodeSelector: 'input'
  });
  return answer.button.accept ? answer.value : null;
}
