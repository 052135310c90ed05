"""Merge the cells' `from __future__` imports, which apply to later cells in a notebook, but to all of a module."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import NamedTuple

from jupyter_ext.capture.executed import Executed


class FutureLine(NamedTuple):
    """Line of `from __future__` imports for the captured module, and warnings about code whose meaning it changes.

    `lines` has this one line, or is empty if no cell imports from `__future__`.
    """

    lines: list[str]
    warnings: list[str]


def future_imports(executed: Executed, needed: Collection[int]) -> FutureLine:
    """Return the line that imports all names that the cells import from `__future__`, with warnings.

    The name `annotations`, which turns annotations into strings, is left out if all needed statements with annotations
    ran before it was imported. If only some of them did, there is a warning. `needed` has the indices of the statements
    that the module contains.
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
