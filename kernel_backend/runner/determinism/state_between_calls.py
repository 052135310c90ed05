"""Find the state that users' functions keep from one call to the next: globals and closures that they change."""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
from collections import deque
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import nn

from kernel_backend.installed_code import is_installed
from kernel_backend.runner.determinism.reachability import held_by

_CHANGED_IN_PLACE = (list, dict, set, deque, np.ndarray, torch.Tensor)
_ADDING = frozenset({"append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault"})
_MAKING = frozenset({"__init__", "__new__", "__setstate__", "load_state_dict"})
_REMOVING = frozenset({"pop", "popleft", "popitem", "remove", "discard", "clear"})


def state_between_calls(objects: Mapping[str, Any]) -> dict[str, bool]:
    """Return the names of variables outside of users' functions that these change; True for those that they read, too.

    The functions are those reached from `objects`. The variables are globals and variables of enclosing functions:
    numbers, tensors and others that are assigned anew, lists and dicts that are filled, and tensors and objects of the
    user's classes that are changed in place. Modules are left out, as checkpoints hold them.
    """
    changed: dict[str, None] = {}
    read: set[str] = set()
    for _, each in held_by(objects):
        if type(each) is FunctionType and not is_installed(each.__code__.co_filename):
            found = _Reading(each)
            changed |= dict.fromkeys(found.changed)
            read |= found.read
    return {name: name in read for name in changed}


def changed_variables(function: FunctionType) -> list[str]:
    """Return the names of the variables outside of a user's function that it assigns anew or changes in place."""
    return list(_Reading(function).changed)


def changed_attributes(kind: type) -> tuple[str, ...]:
    """Return the names of the attributes that methods of a user's class change in `self` once it was made."""
    methods = [
        each
        for base in kind.__mro__
        for name, each in vars(base).items()
        if type(each) is FunctionType and name not in _MAKING and not is_installed(each.__code__.co_filename)
    ]
    return tuple(dict.fromkeys(name for each in methods for name in _changed_in_self(each)))


def is_of_user(value: Any) -> bool:
    """Return True for an instance of a class that the user has defined."""
    own = [each for each in vars(type(value)).values() if isinstance(each, FunctionType)]
    return any(not is_installed(each.__code__.co_filename) for each in own)


def source_tree(function: FunctionType) -> ast.AST:
    """Return the syntax tree of a function's source; an empty one where it has none, as a lambda in an expression."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return ast.Module([], [])


def changes_in_place(method: str) -> bool:
    """Return True for a name of methods that change what they are called on, such as `append` and `mul_`."""
    return method in _ADDING | _REMOVING or (method.endswith("_") and not method.endswith("__"))


class _Reading(ast.NodeVisitor):
    """Reading of one function's source: which variables outside of it does it change, and which does it read?"""

    def __init__(self, function: FunctionType) -> None:
        self.changed: dict[str, None] = {}
        self.read: set[str] = set()
        self._outside = variables_outside(function)
        tree = source_tree(function)
        scopes = [each for each in ast.walk(tree) if isinstance(each, ast.Global | ast.Nonlocal)]
        declared = {name for each in scopes for name in each.names}
        self._declared = declared - {*function.__code__.co_cellvars}
        self._local = {*_bound(tree)} - declared | {*function.__code__.co_cellvars}
        self.visit(tree)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self._local:
            return
        if isinstance(node.ctx, ast.Load):
            self.read.add(node.id)
        elif node.id in self._declared:
            self.changed[node.id] = None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._place(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._place(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Read a call whose result is dropped, such as `seen.append(loss)`: it changes `seen` without reading it."""
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and self._changes(call.func):
            for each in (*call.args, *call.keywords):
                self.visit(each)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            self._changes(node.func)
        self.generic_visit(node)

    def _place(self, node: ast.Attribute | ast.Subscript) -> None:
        root = _root(node)
        if isinstance(node.ctx, ast.Load) or not self._holds_state(root):
            self.generic_visit(node)
            return
        self.changed[str(root)] = None
        if isinstance(node, ast.Subscript):
            self.visit(node.slice)

    def _changes(self, method: ast.Attribute) -> bool:
        root = _root(method)
        if not self._holds_state(root) or not changes_in_place(method.attr):
            return False
        self.changed[str(root)] = None
        return True

    def _holds_state(self, name: str | None) -> bool:
        """Return True if a name is a variable outside of the function whose value can be changed in place."""
        if name is None or name in self._local:
            return False
        value = self._outside.get(name)
        if isinstance(value, nn.Module | torch.optim.Optimizer):
            return False
        return isinstance(value, _CHANGED_IN_PLACE) or is_of_user(value)


def variables_outside(function: FunctionType) -> dict[str, Any]:
    """Return the globals of a function and the variables of enclosing functions that it uses, by name."""
    found = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found


def _changed_in_self(method: FunctionType) -> Iterator[str]:
    """Yield the names of attributes of its first argument that a method assigns, fills or changes in place."""
    own = method.__code__.co_varnames[:1]
    for node in ast.walk(source_tree(method)):
        place: ast.expr | None = None
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            place = node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and changes_in_place(node.func.attr):
            place = node.func.value
        while isinstance(place, ast.Attribute | ast.Subscript):
            if isinstance(place, ast.Attribute) and isinstance(place.value, ast.Name) and place.value.id in own:
                yield place.attr
            place = place.value


def _bound(tree: ast.AST) -> Iterator[str]:
    for each in ast.walk(tree):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            yield each.id
        elif isinstance(each, ast.arg):
            yield each.arg


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
