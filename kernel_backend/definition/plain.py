"""Mark a notebook cell that runs once without changes (`%%dlrun`), and capture the value of its last expression."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from kernel_backend.definition.script.defined import set_by_cell
from kernel_backend.model.artifacts import LAST

MARK = "__dlrun__"  # assigned by the cell's last line: the names of the variables to return


def marked(cell: str, names: Sequence[str]) -> str:
    """Return the cell's source with a last line that marks it as plain and lists the variables to return."""
    return f"{cell.rstrip()}\n{MARK} = {list(names)!r}\n"


def is_plain(tree: ast.Module) -> bool:
    """Return True if the last statement of a module marks its cell as plain."""
    return bool(tree.body) and _is_mark(tree.body[-1])


def above(tree: ast.Module, cell: int) -> ast.Module:
    """Return the module's statements above line `cell`, at which the submitted cell begins."""
    return ast.Module([each for each in tree.body if each.lineno < cell], [])


def split(tree: ast.Module, cell: int) -> ast.Module:
    """Return the module's statements from line `cell` on, in which the last expression's value is assigned to `LAST`.

    All `from __future__` imports of the module are included.
    """
    ahead = [each for each in tree.body if isinstance(each, ast.ImportFrom) and each.module == "__future__"]
    own = [each for each in tree.body if each.lineno >= cell and each not in ahead]
    last = own[-2] if len(own) > 1 else None
    if isinstance(last, ast.Expr):
        target = ast.Name(LAST, ast.Store())
        own[-2] = ast.fix_missing_locations(ast.copy_location(ast.Assign([target], last.value), last))
    return ast.Module([*ahead, *own], [])


def brought_back(tree: ast.Module, cell: int) -> list[str]:
    """Return the names that a plain cell gives back: those that its mark lists, else all that it sets.

    Examples
    --------
    >>> brought_back(ast.parse(marked("forest = fit()\\nscore = 1", [])), 1)
    ['forest', 'score']
    >>> brought_back(ast.parse(marked("forest = fit()\\nscore = 1", ["score"])), 1)
    ['score']
    """
    return listed(tree) or [name for name in set_by_cell(tree, cell, whole=True) if name != MARK]


def listed(tree: ast.Module) -> list[str]:
    """Return the names that the mark of a plain cell lists, from `--back`; none if it has no mark."""
    names: list[str] = ast.literal_eval(tree.body[-1].value) if is_plain(tree) else []  # type: ignore[attr-defined]
    return names


def _is_mark(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == MARK
        and isinstance(node.value, ast.List)
    )
