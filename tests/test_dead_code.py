"""Check what vulture cannot: private names that only their own module could use, and its list of exceptions."""

from __future__ import annotations

import ast
import tomllib
from fnmatch import fnmatchcase

from tests.test_layers import FILES, ROOT, tree

HOOKS = {"_jupyter_labextension_paths", "_jupyter_server_extension_points", "_load_jupyter_server_extension"}


def private_names(module: ast.Module) -> set[str]:
    """Return the private functions, classes and variables that a module defines at its top level."""
    names = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.decorator_list:
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and is_store(each)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")} - HOOKS


def is_store(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def test_private_names_are_used_in_their_module() -> None:
    """Vulture takes a name for used when any module uses the same one."""
    assert not {module: names for module in FILES if (names := unused_names(tree(module)))}


def unused_names(module: ast.Module) -> set[str]:
    """Return the private names that a module defines and nothing in it reads."""
    unused = private_names(module)
    for node in ast.walk(module) if unused else ():
        if isinstance(node, ast.Name) and not is_store(node):
            unused.discard(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # a type may be written as a string
            unused.discard(node.value)
    return unused


def test_each_exception_of_vulture_is_needed() -> None:
    from vulture import Vulture

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["vulture"]
    check = Vulture(ignore_decorators=settings["ignore_decorators"])
    check.scavenge([str(ROOT / path) for path in settings["paths"]])
    unused = {item.name for item in check.get_unused_code(min_confidence=60)}
    needless = [each for each in settings["ignore_names"] if not any(fnmatchcase(name, each) for name in unused)]
    assert not needless, f"take these out of ignore_names in pyproject.toml: {needless}"
