/** Number that can be edited in place: Enter saves it, Escape cancels. */

import * as React from 'react';

import { messageOf } from '../service/source';

interface Props {
  name: string; // `Limit of ada`
  text: string; // displayed text, also the initial text of the input
  width: number; // characters
  empty?: string; // meaning of an empty input
  note?: string; // next to the input: the hub's value
  changed?: boolean; // it was set in this service
  save: (typed: string) => Promise<void>; // throws an error whose message is shown
}

export function EditCell({ name, text, width, empty, note, changed, save }: Props): React.JSX.Element {
  const [draft, setDraft] = React.useState<string | null>(null);
  const [wrong, setWrong] = React.useState<string | null>(null);
  const [busy, setBusy] = React.useState(false);
  const button = React.useRef<HTMLButtonElement>(null);
  const back = React.useRef(false); // whether the number gets the focus when the input is closed
  const id = React.useId();
  React.useEffect(() => {
    if (draft === null && back.current) {
      back.current = false;
      button.current?.focus();
    }
  }, [draft]);
  const close = (focus: boolean): void => {
    back.current = focus;
    setDraft(null);
    setWrong(null);
  };
  const keep = async (focus: boolean): Promise<void> => {
    if (draft === null || busy) {
      return;
    }
    if (draft.trim() === text) {
      close(focus);
      return;
    }
    setBusy(true);
    try {
      await save(draft);
      close(focus);
    } catch (error) {
      setWrong(messageOf(error));
    } finally {
      setBusy(false);
    }
  };
  const pressed = (event: React.KeyboardEvent): void => {
    event.stopPropagation(); // arrow keys move within the text
    if (event.key === 'Enter') {
      void keep(true);
    } else if (event.key === 'Escape') {
      close(true);
    }
  };
  if (draft === null) {
    return (
      <span className="dl-number-cell" data-changed={changed}>
        <button
          ref={button}
          type="button"
          className="dl-edit"
          aria-label={`${name}: ${text}${changed ? ', set here' : ''}`}
          onClick={() => setDraft(text)}
        >
          {text}
        </button>
        {note && <small>{note}</small>}
      </span>
    );
  }
  return (
    <span className="dl-number-cell">
      <input
        className="dl-input"
        autoFocus
        aria-label={name}
        aria-invalid={wrong !== null}
        aria-describedby={wrong ? id : undefined}
        size={width}
        placeholder={empty}
        value={draft}
        readOnly={busy}
        onFocus={event => event.target.select()}
        onChange={event => {
          setDraft(event.target.value);
          setWrong(null);
        }}
        onKeyDown={pressed}
        onBlur={() => void (wrong === null && keep(false))} // a refused value is not sent again
      />
      {wrong && (
        <small id={id} role="alert" className="dl-wrong">
          {wrong}
        </small>
      )}
    </span>
  );
}

const STEPS: Record<string, readonly [number, number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1]
};

/** Move the focus between the numbers of a table by arrow keys. */
export function moveAmongCells(event: React.KeyboardEvent<HTMLElement>): void {
  const step = STEPS[event.key];
  const here = event.target instanceof HTMLElement ? event.target : null;
  if (step === undefined || !here?.matches('.dl-edit')) {
    return;
  }
  const rows = [...event.currentTarget.querySelectorAll('tbody tr')];
  const grid = rows.map(row => [...row.querySelectorAll<HTMLElement>('.dl-edit')]);
  const down = grid.findIndex(row => row.includes(here));
  const across = grid[down]?.indexOf(here) ?? 0;
  const there = grid[down + step[0]]?.[across + step[1]];
  if (there) {
    event.preventDefault();
    there.focus();
  }
}
