"""Find the modules that Python source imports anywhere, from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class Import(NamedTuple):
    """Import of a module by its full name.

    `certain` if it is unconditional, so that the code fails without the module.
    """

    name: str
    line: int
    certain: bool = False
    perhaps: tuple[str, ...] = ()  # names in `from name import a, b`, which may be modules, too


def imports(tree: ast.AST, package: str = "") -> list[Import]:
    """Return all imports in a tree, in written order; relative imports are resolved in `package`.

    `importlib.import_module("name")` and `__import__("name")` are included if the name is a literal.
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
        # In a function, a branch or a `try` block the import may not be needed.
        yield from _found(child, package, certain and isinstance(child, ast.ClassDef | ast.With))


def _absolute(node: ast.ImportFrom, package: str) -> str | None:
    """Return the full name of the module in `from x import y`; None for a relative import beyond the top level."""
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


def touches_path(tree: ast.AST) -> bool:
    """Return whether code changes sys.path, as by `sys.path.append(...)`."""
    return any(True for _ in _path_changes(tree))


def added_folders(tree: ast.AST, bases: Sequence[Path]) -> list[Path]:
    """Return existing folders that calls such as `sys.path.insert(0, "../src")` add, if they are literals.

    They are searched relative to each of `bases`. `Path(__file__).parent / "lib"` means the folder `lib` next to the
    file.
    """
    found: list[Path] = []
    for call in _path_changes(tree):
        texts = [
            node.value for node in ast.walk(call) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        tried = [base.joinpath(*some) for base in bases for some in (texts, *([text] for text in texts)) if some]
        found += [folder for folder in tried if folder.is_dir()]
    return found


def _path_changes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        called = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("sys.path.")
        extended = isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "sys.path"
        if called or extended:
            yield node
