"""What the text of a node says by itself."""

from __future__ import annotations

import ast
import builtins
from functools import lru_cache

from jupyter_ext.capture.facts import FunctionNode
from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.follow.things import Value
from jupyter_ext.capture.names import bound, parameters, root


def is_super(node: ast.expr) -> bool:
    """`super()`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def is_type(node: ast.expr, value: Value) -> bool:
    """`list` of `list.append(xs, 1)`."""
    return isinstance(node, ast.Name) and not value and isinstance(getattr(builtins, node.id, None), type)


def is_globals(node: ast.expr) -> bool:
    """`globals()`, and what is the same in a cell."""
    if not isinstance(node, ast.Call) or node.args:
        return False
    return isinstance(node.func, ast.Name) and node.func.id in ("globals", "locals", "vars")


@lru_cache(maxsize=4096)
def loaded(target: ast.Attribute | ast.Subscript) -> ast.expr:
    """What `a.b` of `a.b += 1` is before."""
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
    return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)


def last_name(decorator: ast.expr) -> str:
    """`setter` of `@x.setter`."""
    name, path = root(decorator)
    return path[-1] if path else name or ""


@lru_cache(maxsize=4096)
def as_function(node: ast.GeneratorExp) -> ast.Lambda:
    """The same as a function of no arguments that makes a list."""
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(nothing, ast.ListComp(node.elt, node.generators)), node)


@lru_cache(maxsize=8192)
def body(node: FunctionNode | ast.Lambda) -> tuple[frozenset[str], bool]:
    """The local names of a function, and whether it is a generator."""
    if isinstance(node, ast.Lambda):
        return parameters(node.args), _yields(node.body)
    return parameters(node.args) | bound(node.body), any(_yields(each) for each in node.body)


def _yields(node: ast.AST) -> bool:
    if isinstance(node, ast.Yield | ast.YieldFrom):
        return True
    if isinstance(node, FunctionNode | ast.Lambda | ast.ClassDef):
        return False
    return any(_yields(each) for each in ast.iter_child_nodes(node))


@lru_cache(maxsize=4096)
def summary(node: FunctionNode | ast.Lambda) -> tuple[frozenset[str], bool]:
    """The names that a function reads, and whether it changes anything but its own names."""
    local, _ = body(node)
    every = list(ast.walk(node))
    free = {each.id for each in every if isinstance(each, ast.Name)} - local
    return frozenset(free), any(_writes(each) for each in every)


def _writes(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute | ast.Subscript):
        return not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in libraries.STORING or libraries.changes(node.func.attr)
    return isinstance(node, ast.Global | ast.Nonlocal | ast.AugAssign | ast.Expr)
