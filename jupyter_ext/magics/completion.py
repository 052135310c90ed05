"""Complete the words of `%dl` and the options of `%%dlsubmit` in a cell, as completers for IPython."""

from __future__ import annotations

from typing import Any

from jupyter_ext.magics.commands import VERBS
from kernel_backend.commands.complete import complete, complete_options, live_values
from kernel_backend.spec.options import OPTIONS


def complete_line(shell: Any, event: Any) -> list[str]:
    """Return completions of the word at the cursor in a `%dl` line, with experiments and nodes of a running service."""
    before, word = _words(event)
    return complete(VERBS, before, word, "notebook", live_values)


def complete_submission(shell: Any, event: Any) -> list[str]:
    """Return completions of an option, or of its value, in the line of `%%dlsubmit`."""
    before, word = _words(event)
    return complete_options(OPTIONS, before, word, "notebook", live_values)


def _words(event: Any) -> tuple[list[str], str]:
    _, *words = event.text_until_cursor.split(" ")
    *before, word = words or [""]
    return [each for each in before if each], word
