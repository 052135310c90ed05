"""Find the names that expressions and bodies of functions and classes bind and read, from their syntax."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jupyter_ext.capture.facts import FunctionNode

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OWN_SCOPE = {*_COMPREHENSIONS, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda}
_YIELDS = {ast.Yield, ast.YieldFrom}
_LEAVES = {ast.Constant, ast.Load, ast.Store, ast.Del, *ast.operator.__subclasses__(), *ast.unaryop.__subclasses__()}


Scope = FunctionNode | ast.Lambda | ast.ClassDef


def root(node: ast.AST) -> tuple[str | None, tuple[str, ...]]:
    """Return the base name of an expression and the attributes after it: ("a", ("b", "c", "d")) for `a.b[0].c(1).d`."""
    path: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            path.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript | ast.Starred | ast.Await):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return (node.id if isinstance(node, ast.Name) else None), tuple(reversed(path))


def parameters(arguments: ast.arguments) -> frozenset[str]:
    """Return the names of all parameters in a signature."""
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return frozenset(each.arg for each in every if each)


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the child nodes of a node, except leaves without names; faster than `ast.iter_child_nodes`."""
    for name in node._fields:
        part = getattr(node, name, None)
        if part.__class__ is list:
            for each in part:
                if isinstance(each, ast.AST):
                    yield each
        elif isinstance(part, ast.AST) and part.__class__ not in _LEAVES:
            yield part


@dataclass(frozen=True)
class Body:
    """Names that the body of a function or class binds in any way, and whether the body contains `yield`."""

    names: frozenset[str]
    yields: bool


def local_names(node: Scope) -> frozenset[str]:
    """Return the local names of a function or of a class body."""
    return body(node).names


@lru_cache(maxsize=8192)
def body(node: Scope) -> Body:
    """Return the names that the body of a function or class binds, and whether it contains `yield`."""
    found = scan([node.body] if isinstance(node, ast.Lambda) else node.body)
    return found if isinstance(node, ast.ClassDef) else Body(found.names | parameters(node.args), found.yields)


def scan(nodes: Sequence[ast.AST]) -> Body:
    """Return the names that these nodes bind, except those declared global or nonlocal in them."""
    names: set[str] = set()
    outer: set[str] = set()
    yields = False
    queue = list(nodes)
    while queue:
        node = queue.pop()
        kind = node.__class__
        if kind is ast.Name:
            if node.ctx.__class__ is ast.Store:  # type: ignore[attr-defined]
                names.add(node.id)  # type: ignore[attr-defined]
            continue
        if kind in _BINDING:
            _BINDING[kind](node, names, outer)
        yields = yields or kind in _YIELDS
        if kind not in _OWN_SCOPE:
            queue += parts(node)
    return Body(frozenset(names - outer), yields)


def _import(node: ast.Import | ast.ImportFrom, names: set[str], outer: set[str]) -> None:
    names.update((each.asname or each.name).split(".")[0] for each in node.names)


def _named(node: Any, names: set[str], outer: set[str]) -> None:
    if node.name:
        names.add(node.name)


def _rest(node: ast.MatchMapping, names: set[str], outer: set[str]) -> None:
    if node.rest:
        names.add(node.rest)


def _outer(node: ast.Global | ast.Nonlocal, names: set[str], outer: set[str]) -> None:
    outer.update(node.names)


_BINDING: dict[type[ast.AST], Callable[[Any, set[str], set[str]], None]] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), _named),
    **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar), _named),
    **dict.fromkeys((ast.Import, ast.ImportFrom), _import),
    **dict.fromkeys((ast.Global, ast.Nonlocal), _outer),
    ast.MatchMapping: _rest,
}
