"""Reduce a cell with a training loop to what the notebook may run: definitions, imports and constants."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from kernel_backend.definition.script.bindings import changed_by, names_read
from kernel_backend.model.values import literal

_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def defined_only(lines: Sequence[str], tree: ast.Module) -> list[str]:
    """Return a cell's lines; those of statements that its notebook does not run are replaced by empty lines.

    Examples
    --------
    >>> cell = ["lr = 0.1", "def f():", "    return lr", "train(f)"]
    >>> defined_only(cell, ast.parse("\\n".join(cell)))
    ['lr = 0.1', 'def f():', '    return lr', '']
    """
    kept = list(lines)
    for each in left_out(tree):
        kept[each.lineno - 1 : each.end_lineno] = [""] * ((each.end_lineno or each.lineno) - each.lineno + 1)
    return kept


def left_out(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements of a cell that its notebook does not run: all but definitions, imports and constants.

    A constant that the training changes is left out, too: otherwise the notebook would have its first value as if it
    were the result.

    Examples
    --------
    >>> cell = ast.parse("lr = 0.1\\nbest = 9\\nfor step in range(3):\\n    best = train(lr)")
    >>> [each.lineno for each in left_out(cell)]
    [2, 3]
    """
    found: list[ast.stmt] = []
    changed: set[str] = set()  # by statements below that are left out, and by functions that these may call
    needed: set[str] = set()  # by definitions below, at the time when they are executed
    by_functions = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    for each in reversed(tree.body):
        own = changed_by(each)
        if isinstance(each, _DEFINING):
            needed |= names_read(each)
        elif _is_constant(each) and (own & needed or not own & changed):
            needed -= own
        else:
            found.insert(0, each)
            changed |= own | by_functions
    return found


def definitions(tree: ast.Module) -> ast.Module:
    """Return a program reduced to its definitions, imports and constants."""
    return ast.Module([each for each in tree.body if _defines(each)], tree.type_ignores)


def _defines(statement: ast.stmt) -> bool:
    if isinstance(statement, _DEFINING):
        return True
    value = _value(statement)
    return value is not _NONE and value not in ([], {})


def _is_constant(statement: ast.stmt) -> bool:
    """Return True for an assignment of a literal that contains no empty list or dict, as these usually hold state."""
    value = _value(statement)
    return value is not _NONE and not _holds_empty(value)


_NONE = object()


def _value(statement: ast.stmt) -> Any:
    """Return the literal that a statement assigns; `_NONE` if it is no such statement."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return _NONE
    try:
        return literal(statement.value)
    except ValueError:
        return _NONE


def _holds_empty(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return value in ([], {}) or any(map(_holds_empty, parts))
