"""Choose the frameworks that a forkserver imports besides torch, by the imports of a definition."""

from __future__ import annotations

import ast
from importlib.machinery import PathFinder
from pathlib import Path

# Each takes seconds to import, and importing it earlier changes nothing of what a definition computes.
FRAMEWORKS = ("lightning", "pytorch_lightning")
_MODULES = {"lightning": "lightning.pytorch"}


def frameworks(code: Path, cwd: Path) -> tuple[str, ...]:
    """Return the modules of frameworks that the definition in folder `code` imports.

    There are none if it sets environment variables, which their imports might read, or brings a module of such a name.
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
    """Return the packages that a statement at the top level imports."""
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").partition(".")[0]] if not node.level else []
    return [each.name.partition(".")[0] for each in node.names] if isinstance(node, ast.Import) else []
