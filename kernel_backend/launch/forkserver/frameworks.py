"""Choose the frameworks that a forkserver imports besides torch, by the imports of the definition."""

from __future__ import annotations

import ast
from importlib.machinery import PathFinder
from pathlib import Path

# Each takes seconds to import; an earlier import does not change results.
FRAMEWORKS = ("lightning", "pytorch_lightning")
_MODULES = {"lightning": "lightning.pytorch"}


def frameworks(code: Path, cwd: Path) -> tuple[str, ...]:
    """Return the framework modules that the definition in folder `code` imports.

    Empty if it sets environment variables, which the imports might read, or has a module of the same name.
    """
    try:
        source = (code / "definition.py").read_text()
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError):  # the ranks report it
        return ()
    if "environ" in source or "putenv" in source:
        return ()
    names = {name for node in tree.body for name in _imported(node)}
    own = [str(code), str(cwd)]
    return tuple(
        _MODULES.get(name, name) for name in FRAMEWORKS if name in names and PathFinder.find_spec(name, own) is None
    )


def _imported(node: ast.stmt) -> list[str]:
    """Return the packages imported by a top-level statement."""
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").partition(".")[0]] if not node.level else []
    return [each.name.partition(".")[0] for each in node.names] if isinstance(node, ast.Import) else []
