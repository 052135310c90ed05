"""Answers of verbs: a body for programs, and what users see. Each kind has a renderer in a terminal and in a cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kernel_backend.client import Client
from kernel_backend.model.diff import Diff
from kernel_backend.model.views.overview import Overview

OK, FAILED, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130  # exit codes


class Table(NamedTuple):
    """Rows below a head; `empty` is the sentence where there are none."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    empty: str


class Text(NamedTuple):
    """Lines to read."""

    lines: Sequence[str]


class File(NamedTuple):
    """Text that belongs into a file, as it is: a lock, or Python code."""

    text: str
    python: bool = False


class Log(NamedTuple):
    """Lines of a log, as they come; `empty` is said where there were none."""

    lines: Iterable[str]
    empty: str = ""


class Comparison(NamedTuple):
    """Hold the differences between two experiments."""

    diff: Diff


class Card(NamedTuple):
    """An experiment with its trials; `failures` are left out where they have been told."""

    client: Client
    overview: Overview
    failures: bool = True


class Started(NamedTuple):
    """An experiment that has just been made; `captured` says of what, `hint` what to do next."""

    client: Client
    overview: Overview
    captured: Sequence[str]
    hint: str = ""


Shown = Table | Text | File | Log | Comparison | Card | Started


@dataclass(frozen=True)
class Answer:
    """What a verb answers.

    `body` is printed instead with `--json`, where it is not None. `notes` are said beside it in any case.
    """

    body: Any
    shown: Sequence[Shown] = ()
    notes: Sequence[str] = ()
    code: int = OK


class Waited(NamedTuple):
    """An experiment when it has ended, None when the user stopped waiting, and the exit code of that."""

    overview: Overview | None
    code: int = OK


class Console(Protocol):
    """Where a verb was typed: a terminal or a cell."""

    def say(self, text: str) -> None:
        """Say something beside the answer."""

    def note(self, text: str) -> None:
        """Say what a card of the experiment would show: only where there is none."""

    def agrees(self, question: str) -> bool:
        """Ask the user; where nobody is asked, the line was the answer."""

    def waits(self, asked: bool | None) -> bool:
        """Return whether an experiment is waited for: as `asked` on the line, else as is usual here."""

    def wait(self, client: Client, overview: Overview, captured: Sequence[str], quiet: bool = False) -> Waited:
        """Show an experiment until it has ended; an interrupt ends the waiting alone."""
