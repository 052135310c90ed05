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


def _definition(world: AbstractState, node: FunctionNode) -> Value:
    world.bind(node.name, _decorated(world, node, function(world, node)))
    return NOTHING


def _decorated(world: AbstractState, node: FunctionNode | ast.ClassDef, thing: AbstractObject) -> Value:
    value: Value = frozenset([thing])
    for decorator in reversed(node.decorator_list):
        called = world.visit(decorator)
        _, path = root(decorator)
        inner = decorator.func if isinstance(decorator, ast.Call) else decorator
        receiver = world.visit(inner.value) if isinstance(inner, ast.Attribute) else NOTHING
        unseen = bool(called & receiver) or not called
        called -= receiver
        known = [each for each in called if each.function or each.is_class or each.classes]
        if known:
            value |= frozenset().union(*[apply(world, each, [value], {}, decorator) for each in known])
        if unseen and not any(each.package for each in called | receiver):
            change(world, receiver)
            for each in receiver:
                each.hold(value)
        packages = [each.package for each in called | receiver if each.package]
        if packages:
            if path and libraries.sets(path):
                change_package(world, packages[0], path)
            thing.opaque = True
    return value


def _class(world: AbstractState, node: ast.ClassDef) -> Value:
    thing = world.make(node, is_class=True)
    for base in node.bases:
        found = world.visit(base)
        thing.classes += [each for each in found if each.is_class and each not in thing.classes]
        if any(not each.is_class for each in found):
            thing.opaque = True
        for each in found:
            if each.is_class:
                each.holders.add(thing)
    meta: Value = NOTHING
    keywords: dict[str | None, Value] = {}
    for keyword in node.keywords:
        keywords[keyword.arg] = world.visit(keyword.value)
        if keyword.arg == "metaclass":
            meta = keywords[keyword.arg]
    frame = world.open(local_names(node), world.frame, is_class=True)
    outer, world.frame = world.frame, frame
    world.visit_all(node.body)
    world.frame = outer
    for name, value in frame.values.items():
        thing.hold(value, name)
        call_methods(world, value, ("__set_name__",), [frozenset([thing]), NOTHING], node)
    itself: Value = frozenset([thing])
    for each in list(thing.classes):
        meta |= frozenset(each.find("metaclass"))
    thing.hold(meta, "metaclass")
    if world.counts_subclasses:
        world.changed.update(thing.classes)
    for each in meta:
        thing.classes += [each] if each.is_class and each not in thing.classes else []
        for name in ("__new__", "__init__", "__prepare__"):
            for method in each.find(name):
                invoke(world, method, [itself, NOTHING, itself, itself], {}, node)
    for each in thing.classes:
        for method in each.find("__init_subclass__"):
            invoke(world, method, [itself], {key: v for key, v in keywords.items() if key}, node)
    world.bind(node.name, _decorated(world, node, thing))
    return NOTHING


VISITS: Visits = {**dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), _definition), ast.ClassDef: _class}
