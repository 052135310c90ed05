"""Render answers of `%dl` below a cell, with a method for each kind of part."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_ext.frontend import headless, this_shell, wants_widget
from jupyter_ext.job.job import Job
from jupyter_ext.magics.waiting import show, wait
from jupyter_ext.values.awaited import AwaitedValues
from jupyter_ext.views import LiveView, table
from jupyter_ext.views.compare import diff_bundle
from kernel_backend.client import Client
from kernel_backend.commands.answer import (
    Answer,
    Bound,
    Card,
    Comparison,
    File,
    Frames,
    Log,
    Shown,
    Started,
    Table,
    Text,
    Waited,
)
from kernel_backend.model.views.overview import Overview
from kernel_backend.text.terminal import tell


class Cell:
    """Output of one `%dl` line: tables and cards are displayed as MIME bundles, other parts as text."""

    def __init__(self, arguments: argparse.Namespace, awaited: AwaitedValues) -> None:
        """Set up for the arguments of the line; `awaited` binds values of jobs in the notebook."""
        self._awaited = awaited
        self._view: str | None = getattr(arguments, "view", None)

    def show(self, answer: Answer) -> None:
        """Render each part of an answer below the cell, then print the answer's notes."""
        for each in answer.shown:
            _RENDERERS[type(each)](self, each)
        for note in answer.notes:
            tell(note)

    def say(self, text: str) -> None:
        """Print a text below the cell."""
        tell(text)

    def note(self, text: str) -> None:
        """Do nothing: the experiment's card shows its notes already."""

    def agrees(self, question: str) -> bool:
        """Return True without asking, as the user has confirmed the action by running the line."""
        return True

    def waits(self, asked: bool | None) -> bool:
        """Return whether to wait for the experiment's end, as the user's option `asked` says.

        Without the option, it is True in a notebook that runs without a user.
        """
        return headless(this_shell()) if asked is None else asked

    def wait(self, client: Client, overview: Overview, captured: Sequence[str], quiet: bool = False) -> Waited:
        """Show the experiment until it has ended, as a live card, or as lines in a notebook that runs without a user.

        `captured` are sentences about its submission; with `quiet`, nothing is shown meanwhile. Raises
        ExperimentFailed.
        """
        return Waited(wait(client, overview, captured, plain=headless(this_shell()), quiet=quiet))

    def table(self, found: Table) -> None:
        """Display a table as HTML and plain text."""
        _display(table(found.head, found.rows, found.empty))

    def text(self, text: Text) -> None:
        """Print the lines of a text, if it has any."""
        if text.lines:
            tell("\n".join(text.lines))

    def file(self, file: File) -> None:
        """Print the content of a file."""
        tell(file.text.rstrip() if file.python else file.text)

    def log(self, log: Log) -> None:
        """Print all lines of a log at once."""
        tell("".join(log.lines).rstrip() or log.empty, log=True)

    def frames(self, frames: Frames) -> None:
        """Print the lines of each frame of a live display one below the other."""
        for frame in frames.frames:
            tell("\n".join(frame.plain))

    def comparison(self, found: Comparison) -> None:
        """Show the differences between two experiments below the cell."""
        _display(diff_bundle(found.diff))

    def card(self, card: Card) -> None:
        """Show an experiment's state as a card or a widget."""
        widget = wants_widget(self._view, this_shell())
        LiveView(card.client, widget=widget).show(card.overview, final=True)

    def started(self, started: Started) -> None:
        """Show a new experiment and its progress below the cell."""
        show(started.client, started.overview, started.captured)

    def bound(self, found: Bound) -> None:
        """Bind values of a job in the notebook, and say which."""
        job = Job(found.reference.experiment, found.client)
        self._awaited.bind(job, found.names, found.renamed, found.reference.trial)


_RENDERERS: dict[type[Shown], Callable[[Cell, Any], None]] = {
    Table: Cell.table,
    Text: Cell.text,
    File: Cell.file,
    Log: Cell.log,
    Frames: Cell.frames,
    Comparison: Cell.comparison,
    Card: Cell.card,
    Started: Cell.started,
    Bound: Cell.bound,
}


def _display(bundle: dict[str, str]) -> None:
    from IPython.display import display

    display(bundle, raw=True)  # type: ignore[no-untyped-call]
