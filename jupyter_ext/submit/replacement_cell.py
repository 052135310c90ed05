"""Offer a rewritten cell in place of a rejected one, displayed below it with a button in JupyterLab."""

from __future__ import annotations

import re

from kernel_backend.errors import InvalidDefinition

MIME_TYPE = "application/vnd.daylight.cell+json"


def offered(refused: InvalidDefinition, line: str) -> InvalidDefinition:
    """Display the rewritten cell that an error suggests, and return an error whose message does not repeat the cell.

    An error without a suggested cell is returned unchanged.
    """
    if "cell" not in refused.details:
        return refused
    from IPython.display import display

    text = offer(refused.details["cell"], refused.details["options"], line)
    display({MIME_TYPE: {"cell": text}, "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]
    return InvalidDefinition(f"{refused.message.removesuffix(refused.details['shown'])}, shown above")


def offer(cell: str, options: list[str] | tuple[str, ...], line: str) -> str:
    """Return a cell to offer: a `%%dlsubmit` line, and below it the rewritten cell `cell`.

    The line has the options of the rejected cell's `line`, and those of `options` that are missing there.
    """
    pairs = zip(options[::2], options[1::2], strict=True)
    more = [f"{flag} {value}" for flag, value in pairs if not re.search(rf"(^|\s){flag}(=|\s|$)", line)]
    return f"{' '.join(['%%dlsubmit', *filter(None, [line.strip()]), *more])}\n{cell}"
