/** What a person is asked before something is done. */

import { Dialog, InputDialog, showDialog } from '@jupyterlab/apputils';

import { numbersIn } from './list';

export async function isSure(number: number): Promise<boolean> {
  const answer = await showDialog({
    title: `Stop #${number} for good?`,
    body: 'Its checkpoints and curves stay; it cannot be resumed.',
    buttons: [Dialog.cancelButton({ label: 'Keep it running' }), Dialog.warnButton({ label: 'Stop it' })],
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
