"""Offer a rewritten cell in place of a rejected one, displayed below it with a button in JupyterLab."""

from __future__ import annotations

import re

from kernel_backend.errors import InvalidDefinition

MIME_TYPE = "application/vnd.daylight.cell+json"


def offered(refused: InvalidDefinition, line: str) -> InvalidDefinition:
    """Display the rewritten cell of an error, if it has one, and return the error without that text."""
    if "cell" not in refused.details:
        return refused
    from IPython.display import display

    text = offer(refused.details["cell"], refused.details["options"], line)
    display({MIME_TYPE: {"cell": text}, "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]
    return InvalidDefinition(f"{refused.message.removesuffix(refused.details['shown'])}, shown above")


def offer(cell: str, options: list[str] | tuple[str, ...], line: str) -> str:
    """Return the cell below a `%%dlsubmit` line with the options of `line` and the missing ones of `options`."""
    pairs = zip(options[::2], options[1::2], strict=True)
    more = [f"{flag} {value}" for flag, value in pairs if not re.search(rf"(^|\s){flag}(=|\s|$)", line)]
    return f"{' '.join(['%%dlsubmit', *filter(None, [line.strip()]), *more])}\n{cell}"
