"""Complete `%dl` in a cell, with the experiments and nodes of a running service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_ext.magics.commands import VERBS
from kernel_backend import discovery
from kernel_backend.client import Client
from kernel_backend.commands.complete import complete
from kernel_backend.errors import DaylightError
from kernel_backend.spec.options import Candidates

STATES = ("queued", "starting", "running", "releasing", "paused", "stopping", "stopped", "completed", "failed")


def complete_line(shell: Any, event: Any) -> list[str]:
    """Complete the word at the cursor, as a completer of IPython."""
    _, *words = event.text_until_cursor.split(" ")
    *before, word = words or [""]
    return complete(VERBS, [each for each in before if each], word, "notebook", _values)


def _values(kind: Candidates) -> Sequence[str]:
    """Look up values; a service is neither started nor waited for."""
    if kind == "state":
        return STATES
    if kind not in ("experiment", "trial", "node"):
        return []
    try:
        address = discovery.find()
        if address is None:
            return []
        client = Client(lambda: address, patience=0.0)
        if kind == "node":
            return [node.name for node in client.nodes()]
        return [str(each.experiment.number) for each in client.experiments()]
    except DaylightError:
        return []
