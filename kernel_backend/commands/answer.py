"""Define the answer of a command such as `daylight list` or `%dl list`.

It has a body for `--json`, and parts that a terminal or a notebook cell renders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kernel_backend.client import Client
from kernel_backend.model.diff import Diff
from kernel_backend.model.ids import Reference
from kernel_backend.model.views.overview import Overview

OK, FAILED, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130  # exit codes


class Table(NamedTuple):
    """Table with a header row; `empty` is the sentence shown if it has no rows.

    `spare` names columns that a narrow terminal leaves out, the first of them first.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    empty: str
    spare: Sequence[str] = ()


class Text(NamedTuple):
    """Lines of plain text."""

    lines: Sequence[str]


class File(NamedTuple):
    """Content of a file, such as a lock file of packages or Python code, which is printed unchanged."""

    text: str
    python: bool = False


class Log(NamedTuple):
    """Lines of a rank's log, printed as they arrive; `empty` is printed if there are none."""

    lines: Iterable[str]
    empty: str = ""


class Frame(NamedTuple):
    """State of a live display at one time.

    A terminal shows `lines` and, below them, `tables`; other output gets the lines in `plain` instead.
    """

    lines: Sequence[str]
    tables: Sequence[Table]
    plain: Sequence[str]


class Frames(NamedTuple):
    """Live display, in which each frame replaces the previous one; an interrupt ends the display."""

    frames: Iterable[Frame]


class Comparison(NamedTuple):
    """Part of an answer: a comparison of two experiments."""

    diff: Diff


class Card(NamedTuple):
    """Part of an answer: an experiment with its trials; `failures` is False if its failures were shown already."""

    client: Client
    overview: Overview
    failures: bool = True


class Started(NamedTuple):
    """Part of an answer: a new experiment, how its source was captured, and the command to use next (`hint`)."""

    client: Client
    overview: Overview
    captured: Sequence[str]
    hint: str = ""


class Bound(NamedTuple):
    """Part of an answer: values of a job, which a notebook binds to their names, or the only one to `renamed`.

    A terminal shows the `table` of them instead.
    """

    client: Client
    reference: Reference
    names: Sequence[str]
    renamed: str
    table: Table


Shown = Table | Text | File | Log | Frames | Comparison | Card | Started | Bound


@dataclass(frozen=True)
class Answer:
    """Result of a command: the parts to print, the body for `--json`, and the exit code.

    With `--json` and a `body`, the body is printed instead of the parts in `shown`. `notes` are always printed.
    """

    body: Any
    shown: Sequence[Shown] = ()
    notes: Sequence[str] = ()
    code: int = OK


class Waited(NamedTuple):
    """Result of waiting for an experiment: its overview, None after an interrupt, and the exit code."""

    overview: Overview | None
    code: int = OK


class Console(Protocol):
    """Terminal or notebook cell in which a command such as `daylight list` or `%dl list` runs and shows its answer."""

    def say(self, text: str) -> None:
        """Print a message next to the answer."""

    def note(self, text: str) -> None:
        """Print a note about an experiment, except in a console that shows the experiment as a card with all notes."""

    def agrees(self, question: str) -> bool:
        """Ask the user to confirm; return the answer, or True without asking if there is no terminal."""

    def waits(self, asked: bool | None) -> bool:
        """Return whether to wait for an experiment: `asked` if it is not None, else what is usual for this console."""

    def wait(self, client: Client, overview: Overview, captured: Sequence[str], quiet: bool = False) -> Waited:
        """Show an experiment until it has ended; an interrupt stops only the waiting, not the experiment.

        `captured` are sentences about its submission. With `quiet`, a notebook cell shows nothing meanwhile.
        """
