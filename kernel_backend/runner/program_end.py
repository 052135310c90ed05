"""Determine why a program ended from its exit code and the last lines of its log."""

from __future__ import annotations

import re
import signal
from pathlib import Path

END = 64 * 1024  # bytes read from the end of the log
_REFUSED = 2  # exit code of argparse, click and similar parsers for a usage error
_LINES = 30  # lines at the end of the log that may hold the usage
_BOX = " \t│╭╮╰╯─"  # drawn around a message by rich, as in typer
_WORDS = 8  # last lines that a failure shows
_SHOWN = 300  # characters shown of each
_BY_SHELL = 128  # a shell adds it to the signal that ended its command


def end_of(log: Path) -> str:
    """Return the last part of a program's log; if the program failed, its usage error or traceback is there."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - END))
        return file.read().decode(errors="replace")


def last_words(text: str) -> str:
    r"""Return the last lines that a program printed, as lines that are added to a message; "" if it printed nothing.

    Examples
    --------
    >>> last_words("epoch 1\n\nno data in /data\n")
    '\nthe last lines that it printed:\n  epoch 1\n  no data in /data'
    """
    lines = [line.strip()[:_SHOWN] for line in text.splitlines() if line.strip()][-_WORDS:]
    return "\n  ".join(["\nthe last lines that it printed:", *lines]) if lines else ""


def usage_error(code: object, text: str) -> str | None:
    r"""Return the usage error of a program that rejected its command line; None if it ended for another reason.

    Examples
    --------
    >>> usage_error(2, "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --beta")
    'train.py: error: unrecognized arguments: --beta'
    >>> usage_error(2, "the mesh has no cells") is None
    True
    """
    lines = [line.strip(_BOX) for line in text.splitlines()[-_LINES:]]
    if code != _REFUSED or not any(line.lower().startswith("usage:") for line in lines):
        return None
    lines = [line for line in lines if line]
    errors = [line for line in lines if re.search(r"\berror: \S", line, re.IGNORECASE)]
    return (errors or lines)[-1]


def signal_of(code: int) -> str | None:
    """Return the name of the signal behind an exit code (`-9`, or `137` from a shell); None if it is not from a signal.

    Examples
    --------
    >>> signal_of(-9), signal_of(137), signal_of(1)
    ('SIGKILL', 'SIGKILL', None)
    """
    number = -code if code < 0 else code - _BY_SHELL
    if number <= 0:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return f"SIG{number}" if code < 0 else None
