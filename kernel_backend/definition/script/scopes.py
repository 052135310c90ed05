"""Split a program into scopes (modules and functions), and find by name which scope refers to which."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kernel_backend.model.syntax import FunctionNode

Loop = ast.For | ast.While
_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_MADE_BY_CALL = ("__init__", "__new__", "__post_init__", "__call__", "__enter__", "__iter__", "__next__")


@dataclass(eq=False)
class Scope:
    """Module, function or class body, without the functions and classes within it."""

    module: str
    name: str  # the name by which others refer to it; for `__init__` and similar methods, the class
    qualified: str
    node: ast.Module | FunctionNode | ast.ClassDef
    nodes: list[ast.AST] = field(default_factory=list)  # in the order of the source

    @property
    def names(self) -> frozenset[str]:
        """Return all names and attributes to which the scope refers."""
        return names_of(self.nodes)


def names_of(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return the variable and attribute names that occur in these syntax nodes."""
    found = {each.id for each in nodes if isinstance(each, ast.Name)}
    found |= {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    return frozenset(found)


def scopes(tree: ast.Module, modules: Mapping[str, ast.Module]) -> list[Scope]:
    """Return all scopes of a program (of module name "") and of its project's modules."""
    return [each for name, one in {"": tree, **modules}.items() for each in _scopes(name, one)]


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below `node` that run in the same scope, in source order, without the bodies of functions."""
    ahead = own_children(node)[::-1]
    while ahead:
        yield (node := ahead.pop())
        ahead += own_children(node)[::-1]


def own_children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below `node` that run in the same scope."""
    if not isinstance(node, _INNER):
        return list(ast.iter_child_nodes(node))
    # Decorators, defaults and bases are evaluated in the enclosing scope.
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *node.keywords]
    return [*node.decorator_list, node.args]


def _scopes(module: str, tree: ast.Module) -> Iterator[Scope]:
    yield Scope(module, "", "", tree, list(own_nodes(tree)))
    yield from _inner(module, tree, "", "")


def _inner(module: str, parent: ast.AST, prefix: str, owner: str) -> Iterator[Scope]:
    for node in own_nodes(parent):
        if not isinstance(node, _INNER):
            continue
        qualified = f"{prefix}{node.name}"
        nodes = [inner for statement in node.body for inner in (statement, *own_nodes(statement))]
        if isinstance(node, ast.ClassDef):
            yield Scope(module, node.name, qualified, node, nodes)
            yield from _inner(module, ast.Module(node.body, []), f"{qualified}.", node.name)
            continue
        name = owner if owner and node.name in _MADE_BY_CALL else node.name
        yield Scope(module, name, qualified, node, nodes)
        yield from _inner(module, ast.Module(node.body, []), f"{qualified}.", "")
