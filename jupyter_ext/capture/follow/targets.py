"""Store values in assignment targets: names, attributes and elements."""

from __future__ import annotations

import ast

from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.follow.abstract_objects import ELEMENTS, NOTHING, AbstractObject, Value
from jupyter_ext.capture.follow.abstract_state import AbstractState
from jupyter_ext.capture.follow.functions import invoke
from jupyter_ext.capture.follow.iteration import iterate
from jupyter_ext.capture.follow.mutations import change, change_package, change_root, need_gradients
from jupyter_ext.capture.follow.objects import call_methods
from jupyter_ext.capture.follow.syntax import is_globals
from jupyter_ext.capture.names import root


def store(state: AbstractState, target: ast.expr, value: Value) -> None:
    """Store possible values in a target: a name, an attribute, an element, or a tuple of targets."""
    if isinstance(target, ast.Name):
        if state.frame is None:
            rebind(state, target.id, value, target)
        else:
            state.bind(target.id, value)
    elif isinstance(target, ast.Tuple | ast.List):
        parts = iterate(state, value)
        for each in target.elts:
            store(state, each, parts)
    elif isinstance(target, ast.Starred):
        store(state, target.value, state.holding(target, value))
    elif isinstance(target, ast.Attribute | ast.Subscript):
        _store_part(state, target, value)


def rebind(state: AbstractState, name: str, value: Value, node: ast.AST) -> None:
    """Bind a notebook variable to a new value, and run `__del__` of objects to which nothing refers any more."""
    before = state.globals.get(name, NOTHING)
    state.bind_global(name, value)
    gone = frozenset(each for each in before - value if not each.names and not each.holders - set(each.classes))
    if any("__del__" in cls.all_fields() for each in gone for cls in each.classes):
        state.out.read.add(name)
        call_methods(state, gone, ("__del__",), [], node)


def _store_part(state: AbstractState, target: ast.Attribute | ast.Subscript, value: Value) -> None:
    holder = state.visit(target.value)
    under = target.attr if isinstance(target, ast.Attribute) else ELEMENTS
    if isinstance(target, ast.Subscript):
        state.visit(target.slice)
        call_methods(state, holder, ("__setitem__", "__delitem__"), [NOTHING, value], target)
        _store_by_name(state, target, value)
    else:
        call_methods(state, holder, ("__setattr__",), [NOTHING, value], target)
        known = frozenset[AbstractObject]().union(*[each.find(under) for each in holder])
        call_methods(state, known, ("__set__",), [holder, value], target)
        for found in known:
            if found.function and found.function.decorators - {"staticmethod", "classmethod"}:
                invoke(state, found, [holder, value], {}, target)
    change(state, holder)
    if under in libraries.GRADIENTS:
        need_gradients(holder | value)
    for each in holder:
        each.hold(value, under)
        if each.package is not None:  # `vars(math)["x"] = 1`
            change_package(state, each.package, (*filter(None, each.path.split(".")), under))
        if each.package == "builtins":
            state.bind_weakly(under, value)
    name, path = root(target)
    if name is not None and state.owner(name) is None:
        change_root(state, name, path)


def _store_by_name(state: AbstractState, target: ast.Subscript, value: Value) -> None:
    """Bind the name that a statement such as `globals()["x"] = 1` assigns."""
    key = target.slice
    if is_globals(target.value) and isinstance(key, ast.Constant) and isinstance(key.value, str):
        state.bind_weakly(key.value, value)


def bind_globals(state: AbstractState, node: ast.Call) -> None:
    """Bind the names that a call such as `globals().update(x=1)` assigns."""
    pairs = [(each.arg, each.value) for each in node.keywords]
    for literal in node.args:
        if isinstance(literal, ast.Dict):
            keys = [getattr(each, "value", None) for each in literal.keys]
            pairs += zip(keys, literal.values, strict=True)
    for name, value in pairs:
        if isinstance(name, str):
            state.bind_weakly(name, state.visit(value))
