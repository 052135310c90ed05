"""Classify syntax nodes and collect names, without interpreting them."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass
from functools import lru_cache

from jupyter_ext.capture.facts import FunctionNode
from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.follow.abstract_objects import Value
from jupyter_ext.capture.names import local_names, parts, root


@dataclass(frozen=True)
class Code:
    """Names that functions read, store to or declare `global`, and whether the functions write anything."""

    names: frozenset[str]  # that they read and do not bind
    stored: frozenset[str]  # base names of the targets that they store to
    declared: frozenset[str]  # `global`
    sets: frozenset[str]  # methods that change a module's settings
    writes: bool

    def __or__(self, other: Code) -> Code:
        return Code(
            self.names | other.names,
            self.stored | other.stored,
            self.declared | other.declared,
            self.sets | other.sets,
            self.writes or other.writes,
        )


def is_super(node: ast.expr) -> bool:
    """Return True if a node is `super()`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def is_type(node: ast.expr, value: Value) -> bool:
    """Return True if a node names a builtin type, such as `list` in `list.append(xs, 1)`."""
    return isinstance(node, ast.Name) and not value and isinstance(getattr(builtins, node.id, None), type)


def is_globals(node: ast.AST) -> bool:
    """Return True if a node is `globals()`, or `locals()` or `vars()`, which equal it in a cell."""
    if not isinstance(node, ast.Call) or node.args:
        return False
    return isinstance(node.func, ast.Name) and node.func.id in ("globals", "locals", "vars")


@lru_cache(maxsize=4096)
def loaded(target: ast.Attribute | ast.Subscript) -> ast.expr:
    """Return the expression that reads the target of an augmented assignment such as `a.b += 1`."""
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
    return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)


def last_name(decorator: ast.expr) -> str:
    """Return the last name of a decorator, such as `setter` of `@x.setter`."""
    name, path = root(decorator)
    return path[-1] if path else name or ""


@lru_cache(maxsize=4096)
def as_function(node: ast.GeneratorExp) -> ast.Lambda:
    """Convert a generator expression to a lambda without arguments that returns the list of its elements."""
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(nothing, ast.ListComp(node.elt, node.generators)), node)


@lru_cache(maxsize=4096)
def text_of(node: FunctionNode | ast.Lambda) -> Code:
    """Return the names that the source of one function uses."""
    names, stored, declared, sets, writes = set[str](), set[str](), set[str](), set[str](), False
    queue: list[ast.AST] = [node]
    while queue:
        each = queue.pop()
        queue += parts(each)
        if isinstance(each, ast.Name):
            names.add(each.id)
        elif isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
            stored.add(root(each)[0] or "")
            writes = True
        elif isinstance(each, ast.Call):
            name, path = root(each.func)
            stored |= {"setattr"} if name == "setattr" else set()
            sets |= {path[-1]} if libraries.sets(path) else set()
            writes = writes or (bool(path) and (path[-1] in libraries.STORING or libraries.changes(path[-1])))
        elif isinstance(each, ast.Global | ast.Nonlocal):
            declared |= set(each.names) if isinstance(each, ast.Global) else set()
            writes = True
        elif isinstance(each, ast.AugAssign | ast.Expr):
            writes = True
    return Code(frozenset(names - local_names(node)), frozenset(stored), frozenset(declared), frozenset(sets), writes)
