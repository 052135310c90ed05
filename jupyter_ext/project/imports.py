"""Which modules a piece of Python imports, wherever in it: by its syntax alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple


class Import(NamedTuple):
    """A module by its full name. `certain` says that the code fails without it as soon as it is imported itself."""

    name: str
    line: int
    certain: bool = False
    perhaps: tuple[str, ...] = ()  # of `from name import a, b`: each may be a module, too


def imports(tree: ast.AST, package: str = "") -> list[Import]:
    """All the imports in a tree, in written order; relative ones belong to a module of `package`.

    `importlib.import_module("name")` and `__import__("name")` count where the name is written out.
    """
    return list(_found(tree, package, certain=True))


def _found(node: ast.AST, package: str, certain: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(each.name, child.lineno, certain) for each in child.names)
        elif isinstance(child, ast.ImportFrom):
            name = _absolute(child, package)
            if name:
                yield Import(name, child.lineno, certain, tuple(each.name for each in child.names if each.name != "*"))
        elif isinstance(child, ast.Call) and (name := _by_call(child)):
            yield Import(name, child.lineno)
        # In a function, a branch or a `try` the code may do without.
        yield from _found(child, package, certain and isinstance(child, ast.ClassDef | ast.With))


def _absolute(node: ast.ImportFrom, package: str) -> str | None:
    """The full name of what is imported from; None for a relative import that leads nowhere."""
    if not node.level:
        return node.module
    parents = package.split(".") if package else []
    if node.level > len(parents):
        return None
    base = parents[: len(parents) - node.level + 1]
    return ".".join([*base, *filter(None, [node.module])])


def _by_call(node: ast.Call) -> str | None:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
    importing = name in ("import_module", "__import__") and isinstance(first, str) and not first.startswith(".")
    return str(first) if importing else None
