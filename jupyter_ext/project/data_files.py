"""Find data files next to a module that it names by its own place: `Path(__file__).parent / "classes.json"`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_RESOURCES = ("importlib", "importlib.resources", "importlib_resources", "pkgutil")  # find a package's folder


def data_files(tree: ast.Module, folder: Path, root: Path) -> list[Path]:
    """Return existing files and folders that a module names relative to its own place, by literals.

    `folder` has the module. Names such as `HERE` in `HERE = Path(__file__).parent` are followed. Paths are looked for
    in `folder` and in its parents up to `root`.
    """
    bases = [each for each in (folder, *folder.parents) if each.is_relative_to(root)]
    found: dict[Path, None] = {}
    for texts in dict.fromkeys(_paths(tree)):
        try:
            found |= dict.fromkeys(path for base in bases if (path := base.joinpath(*texts)).exists())
        except (OSError, ValueError):  # no file can have this name
            continue
    return list(found)


def _paths(tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """Yield the literals of each expression that refers to the module's place: together, and each by itself."""
    places = _places(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp | ast.Call) and _names(node) & places:
            texts = tuple(_texts(node))
            yield from (texts, *((each,) for each in texts)) if texts else ()


def _places(tree: ast.Module) -> set[str]:
    """Return the names that hold the module's place, or are functions that use it."""
    statements = [(bound, _names(node)) for node in ast.walk(tree) if (bound := _bound(node))]
    found, before = {"__file__", *_finders(tree)}, 0
    while len(found) > before:
        before = len(found)
        found |= {name for bound, used in statements if used & found for name in bound}
    return found


def _finders(tree: ast.Module) -> Iterator[str]:
    """Yield the names by which a module uses libraries that find files of packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in _RESOURCES:
            yield from (each.asname or each.name for each in node.names if each.name != "import_module")
        elif isinstance(node, ast.Import):
            names = (each.asname or each.name for each in node.names if each.name in _RESOURCES[1:])
            yield from (name.rpartition(".")[2] for name in names)


def _bound(node: ast.AST) -> set[str]:
    match node:
        case ast.Assign(targets=targets):
            return {name for each in targets for name in _names(each)}
        case ast.AnnAssign(target=target, value=ast.expr()):
            return _names(target)
        case ast.FunctionDef(name=name):
            return {name}
    return set()


def _names(node: ast.AST) -> set[str]:
    return {
        name
        for each in ast.walk(node)
        if (name := getattr(each, "id", None) or getattr(each, "attr", None)) and isinstance(name, str)
    }


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the literals of an expression that may be parts of a relative path, as they are written."""
    for each in sorted(ast.walk(node), key=lambda each: (getattr(each, "lineno", 0), getattr(each, "col_offset", 0))):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            text = each.value
            if text.strip("./") and not text.startswith("/") and "\0" not in text:
                yield text
