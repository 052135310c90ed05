/** Confirmation before an action, in the browser's own dialog, which keeps the focus; Escape cancels. */

import * as React from 'react';

interface Props {
  title: string;
  yes: string;
  no: string;
  children: React.ReactNode;
  answered: (sure: boolean) => void;
}

export function Ask({ title, yes, no, children, answered }: Props): React.JSX.Element {
  const dialog = React.useRef<HTMLDialogElement>(null);
  const id = React.useId();
  React.useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    return () => shown?.close(); // returns the focus
  }, []);
  return (
    <dialog
      ref={dialog}
      className="dl-ask"
      aria-labelledby={id}
      onCancel={event => {
        event.preventDefault();
        answered(false);
      }}
    >
      <h2 id={id}>{title}</h2>
      {children}
      <div className="dl-ask-buttons">
        <button type="button" className="dl-push" onClick={() => answered(false)}>
          {no}
        </button>
        <button type="button" className="dl-push dl-strong" onClick={() => answered(true)}>
          {yes}
        </button>
      </div>
    </dialog>
  );
}
