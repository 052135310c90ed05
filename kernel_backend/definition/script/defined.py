"""Reduce a cell with a training loop to what the notebook may run: definitions, imports and constants."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from kernel_backend.definition.script.bindings import bound_by, changed_by, names_read
from kernel_backend.definition.script.loops import training_statements
from kernel_backend.model.syntax import FunctionNode
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


def set_by_cell(tree: ast.Module, cell: int = 1, whole: bool = False) -> list[str]:
    """Return the names that a job sets and its notebook does not, of the cell that begins at line `cell` of a program.

    These are bound by statements that the notebook leaves out, or by functions as globals. With `whole` the notebook
    runs nothing of the cell.

    Examples
    --------
    >>> program = ast.parse("x = load()\\nEPOCHS = 3\\nbest = 9\\nfor step in range(EPOCHS):\\n    best = train(x)")
    >>> set_by_cell(program, cell=2)
    ['best', 'step']
    """
    own = ast.Module([each for each in tree.body if each.lineno >= cell], [])
    statements = [each for each in own.body if not isinstance(each, _DEFINING)] if whole else left_out(own)
    lines = {name: found[0] for name, found in bound_by(statements).items() if name}
    lines |= {name: each.lineno for each in ast.walk(tree) if isinstance(each, ast.Global) for name in each.names}
    return sorted(lines, key=lambda name: (lines[name], name))


def definitions(tree: ast.Module) -> ast.Module:
    """Return a program reduced to its definitions, imports and constants, and what these need when they are executed.

    That is for example the registry to which a decorator adds a class. Statements that train are never among it.

    Examples
    --------
    >>> program = ast.parse("device = find()\\ndata = load()\\ndef fit(on=device): ...\\nfit()")
    >>> [each.lineno for each in definitions(program).body]
    [1, 3]
    """
    trains = training_statements(tree)
    bodies = {each.name: each for each in tree.body if isinstance(each, FunctionNode)}
    needed: set[str] = set()  # by statements below that are kept, at the time when they are executed
    kept: list[ast.stmt] = []
    for each in reversed(tree.body):
        if _defines(each) or (_assigns(each) and each not in trains and changed_by(each) & needed):
            kept.insert(0, each)
            needed |= _with_functions(names_read(each), bodies)
    return ast.Module(kept, tree.type_ignores)


def _with_functions(names: set[str], bodies: Mapping[str, ast.stmt]) -> set[str]:
    """Return these names, and those in the bodies of functions among them: a decorator is called at once."""
    found = set(names)
    queue = list(names)
    while queue:
        body = bodies.get(queue.pop())
        new = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)} - found if body is not None else set()
        found |= new
        queue += new
    return found


def _assigns(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None


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
