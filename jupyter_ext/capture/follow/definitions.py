"""Interpret function and class statements, with their decorators, bases and metaclasses."""

from __future__ import annotations

import ast

from jupyter_ext.capture.facts import FunctionNode
from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.follow.abstract_objects import NOTHING, AbstractObject, Value
from jupyter_ext.capture.follow.abstract_state import AbstractState, Visits
from jupyter_ext.capture.follow.functions import function, invoke
from jupyter_ext.capture.follow.mutations import change, change_package
from jupyter_ext.capture.follow.objects import apply, call_methods
from jupyter_ext.capture.names import local_names, root


def _definition(state: AbstractState, node: FunctionNode) -> Value:
    state.bind(node.name, _decorated(state, node, function(state, node)))
    return NOTHING


def _decorated(state: AbstractState, node: FunctionNode | ast.ClassDef, obj: AbstractObject) -> Value:
    value: Value = frozenset([obj])
    for decorator in reversed(node.decorator_list):
        called = state.visit(decorator)
        _, path = root(decorator)
        inner = decorator.func if isinstance(decorator, ast.Call) else decorator
        receiver = state.visit(inner.value) if isinstance(inner, ast.Attribute) else NOTHING
        unseen = bool(called & receiver) or not called
        called -= receiver
        known = [each for each in called if each.function or each.is_class or each.classes]
        if known:
            value |= frozenset().union(*[apply(state, each, [value], {}, decorator) for each in known])
        if unseen and not any(each.package for each in called | receiver):
            change(state, receiver)
            for each in receiver:
                each.hold(value)
        packages = [each.package for each in called | receiver if each.package]
        if packages:
            if path and libraries.sets(path):
                change_package(state, packages[0], path)
            obj.opaque = True
    return value


def _class(state: AbstractState, node: ast.ClassDef) -> Value:
    obj = state.make(node, is_class=True)
    for base in node.bases:
        found = state.visit(base)
        obj.classes += [each for each in found if each.is_class and each not in obj.classes]
        if any(not each.is_class for each in found):
            obj.opaque = True
        _derive(obj, found)
        for each in found:
            if each.is_class:
                each.holders.add(obj)
    meta: Value = NOTHING
    keywords: dict[str | None, Value] = {}
    for keyword in node.keywords:
        keywords[keyword.arg] = state.visit(keyword.value)
        if keyword.arg == "metaclass":
            meta = keywords[keyword.arg]
    frame = state.open(local_names(node), state.frame, is_class=True)
    outer, state.frame = state.frame, frame
    state.visit_all(node.body)
    state.frame = outer
    for name, value in frame.values.items():
        obj.hold(value, name)
        call_methods(state, value, ("__set_name__",), [frozenset([obj]), NOTHING], node)
    itself: Value = frozenset([obj])
    for each in list(obj.classes):
        meta |= frozenset(each.find("metaclass"))
    obj.hold(meta, "metaclass")
    if state.counts_subclasses:
        state.changed.update(obj.classes)
    for each in meta:
        obj.classes += [each] if each.is_class and each not in obj.classes else []
        for name in ("__new__", "__init__", "__prepare__"):
            for method in each.find(name):
                invoke(state, method, [itself, NOTHING, itself, itself], {}, node)
    for each in obj.classes:
        for method in each.find("__init_subclass__"):
            invoke(state, method, [itself], {key: v for key, v in keywords.items() if key}, node)
    state.bind(node.name, _decorated(state, node, obj))
    return NOTHING


def _derive(cls: AbstractObject, bases: Value) -> None:
    """Set the package from which a class derives, and if its instances are data; `bases` may be one of its bases."""
    for each in bases:
        if each.package is not None:
            cls.data = cls.origin is None and libraries.makes_data(each.package, tuple(each.path.split(".")))
            cls.origin = each.package
        elif each.is_class and each.origin is not None:
            cls.origin, cls.data = each.origin, cls.origin is None and each.data


VISITS: Visits = {**dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), _definition), ast.ClassDef: _class}
