"""Check that a notebook cell defines the class named by `--search custom:NAME`, by its syntax tree."""

from __future__ import annotations

import ast

from kernel_backend.errors import InvalidDefinition
from kernel_backend.model.syntax import module_tree
from kernel_backend.model.values import nearest

METHODS = ("ask", "tell")
EXAMPLE = (
    "class {name}:\n    def __init__(self, space, settings): ...\n    def ask(self, trial): ...\n"
    "    def tell(self, trial, params, unit, value): ..."
)


def check_class(source: str, name: str) -> None:
    """Raise InvalidDefinition if `source` lacks the class `name`, or this class lacks the methods `ask` and `tell`.

    Classes that are imported or inherit are not checked here, but by the process that runs the search.
    """
    tree = module_tree(source)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        if name in _imported(tree):
            return
        there = ", ".join(classes) or "none"
        raise InvalidDefinition(
            f"--search custom:{name}: the cell has no class {name}{nearest(name, classes)}; its classes: {there}. "
            f"Write for example\n{EXAMPLE.format(name=name)}"
        )
    node = classes[name]
    found = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    missing = [f"{method}()" for method in METHODS if method not in found]
    if missing and not node.bases:
        raise InvalidDefinition(
            f"--search custom:{name}: {name} (line {node.lineno}) has no {' and no '.join(missing)}. "
            f"Write for example\n{EXAMPLE.format(name=name)}",
            line=node.lineno,
            text=f"class {name}",
        )


def _imported(tree: ast.Module) -> set[str]:
    found = (node.names for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    return {alias.asname or alias.name for names in found for alias in names}
