"""Print answers of commands: tables on a terminal, aligned lines for pipes, JSON for programs.

Names and messages may come from other users, so terminal control sequences are escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernel_backend.cli.fit import fitted
from kernel_backend.model.record import Record
from kernel_backend.printable import harmless
from kernel_backend.text.terminal import tell as tell

if TYPE_CHECKING:
    from rich.table import Table


def print_json(answer: Record | dict[str, Any]) -> None:
    """Print a command's answer as one JSON document, and nothing else, on standard output."""
    print(json.dumps(answer, default=_plain, indent=2))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], empty: str, spare: Sequence[str] = ()) -> None:
    """Print a table on a terminal, aligned columns elsewhere; print the sentence `empty` if there are no rows.

    `spare` names columns that a narrow terminal leaves out, the first of them first.
    """
    head, *rows = [[harmless(cell).replace("\n", "\\n") for cell in row] for row in [head, *rows]]
    if not rows:
        print(empty)
    elif sys.stdout.isatty():
        _draw(head, rows, spare)
    else:
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        for row in [head, *rows]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def say(text: str) -> None:
    """Print a message to standard error, so that pipes carry only answers."""
    print(harmless(text), file=sys.stderr, flush=True)


def ask(question: str) -> bool:
    """Ask the user at the terminal to confirm; return the answer, or True without asking if there is no terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    print(f"{question}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _draw(head: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str]) -> None:
    from rich.console import Console

    console = Console()
    console.print(drawn_table(*fitted(head, rows, console.width, spare)))


def drawn_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return these rows as a table of the library rich, which draws it on a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for name in head:
        # As Text, so that a name such as [bold] is not markup. What does not fit is continued below and not cut.
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _plain(value: object) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    raise TypeError(f"{type(value).__name__} is no JSON")
