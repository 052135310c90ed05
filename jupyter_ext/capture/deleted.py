"""Find names that the submitted cell reads, directly or in functions it calls, but that an earlier cell deleted."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from jupyter_ext.capture.executed import Executed
from jupyter_ext.capture.facts import FunctionNode, Statement
from jupyter_ext.capture.problems import Problem
from jupyter_ext.capture.slice import Slice


def deleted(executed: Executed, sliced: Slice) -> Iterator[Problem]:
    """Yield a problem for each name that the submitted cell reads but an earlier cell deleted."""
    target = executed.statements[executed.start :]
    queue = [name for statement in target for name in statement.now | statement.later]
    seen: set[str] = set()
    while queue:
        name = queue.pop()
        binders = sliced.history.binders.get(name)
        if name in seen or name in sliced.captured or not binders or binders[-1] >= executed.start:
            continue
        seen.add(name)
        last = executed.statements[binders[-1]]
        if _deletes(last, name) and not hasattr(builtins, name):
            number = executed.cell(binders[-1]).number
            way_out = "Run the cell that makes it again, or make it in this cell."
            yield Problem("deleted", name, number, f"'{name}' was deleted in cell [{number}]. {way_out}")
        elif any(isinstance(node, FunctionNode | ast.ClassDef) and node.name == name for node in last.nodes):
            queue += last.later


def _deletes(statement: Statement, name: str) -> bool:
    """Return True if a statement deletes the name (`del name`) and does not use it afterwards."""
    for node in reversed(statement.nodes):
        about = {each.id: each.ctx for each in ast.walk(node) if isinstance(each, ast.Name)}
        if name in about:
            return isinstance(node, ast.Delete) and isinstance(about[name], ast.Del)
    return False
