"""Merge the cells' `from __future__` imports, which apply to later cells in a notebook, but to all of a module."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import NamedTuple

from jupyter_ext.capture.executed import Executed


class FutureLine(NamedTuple):
    """The module's line of `from __future__` imports, "" if none, and warnings if it changes earlier code's meaning."""

    lines: list[str]
    warnings: list[str]


def future_imports(executed: Executed, needed: Collection[int]) -> FutureLine:
    """Return one line that imports all names that the cells import from `__future__`.

    `annotations` turns annotations into strings. It is left out if only statements that ran before it have annotations.
    """
    names = {name: time for time, name in reversed(list(_imported(executed)))}
    warnings = []
    if "annotations" in names:
        since = names["annotations"]
        annotated = [time for time in sorted(needed) if _is_annotated(executed, time)]
        before = [time for time in annotated if time < since]
        if before and len(before) == len(annotated):
            del names["annotations"]
        elif before:
            first, cell = executed.cell(before[0]).number, executed.cell(since).number
            warnings.append(
                f"cell [{first}] ran before 'from __future__ import annotations' in cell [{cell}]: in a job its "
                "annotations are texts, too"
            )
    return FutureLine([f"from __future__ import {', '.join(reversed(names))}"] if names else [], warnings)


def _imported(executed: Executed) -> Iterator[tuple[int, str]]:
    for time, statement in enumerate(executed.statements):
        for node in statement.nodes:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                yield from ((time, each.name) for each in node.names)


def _is_annotated(executed: Executed, time: int) -> bool:
    for top in executed.statements[time].nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.AnnAssign) or getattr(node, "annotation", None) or getattr(node, "returns", None):
                return True
    return False
