"""Reduce a cell with a training loop to what the notebook may run: definitions, imports and constants."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from kernel_backend.model.values import literal

_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


def defined_only(lines: Sequence[str], tree: ast.Module) -> list[str]:
    """Return a cell's lines; all but definitions, imports and constants are replaced by empty lines.

    Examples
    --------
    >>> cell = ["lr = 0.1", "def f():", "    return lr", "train(f)"]
    >>> defined_only(cell, ast.parse("\\n".join(cell)))
    ['lr = 0.1', 'def f():', '    return lr', '']
    """
    kept = list(lines)
    for each in tree.body:
        if not _defines(each):
            kept[each.lineno - 1 : each.end_lineno] = [""] * ((each.end_lineno or each.lineno) - each.lineno + 1)
    return kept


def definitions(tree: ast.Module) -> ast.Module:
    """Return a program reduced to its definitions, imports and constants."""
    return ast.Module([each for each in tree.body if _defines(each)], tree.type_ignores)


def _defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        return _is_constant(statement.value)
    return isinstance(statement, _DEFINING)


def _is_constant(value: ast.expr) -> bool:
    """Return True for a literal; an empty list or dict is none, as it usually holds state."""
    try:
        return literal(value) not in ([], {})
    except ValueError:
        return False
