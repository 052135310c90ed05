"""Resolve attributes of abstract objects, and call methods, classes and instances of the notebook."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.follow.abstract_objects import NOTHING, AbstractObject, Value
from jupyter_ext.capture.follow.abstract_state import AbstractState
from jupyter_ext.capture.follow.functions import invoke
from jupyter_ext.capture.follow.mutations import draw

TRUTH = ("__bool__", "__len__")


def branch_on(state: AbstractState, node: ast.expr) -> Value:
    """Interpret an expression in a boolean context, where `__bool__` or `__len__` may run."""
    value = state.visit(node)
    call_methods(state, value, TRUTH, [], node)
    return value


def attribute(state: AbstractState, holder: Value, name: str, node: ast.AST) -> Value:
    """Return the possible values of `holder.name`, interpreting properties and descriptors."""
    state.spend(len(holder))
    found: set[AbstractObject] = set()
    plain: set[AbstractObject] = set()
    for each in holder:
        known = each.find(name)
        plain |= known
        for part in known:
            if part.function is None:
                continue
            if each.is_class:
                of_class = "classmethod" in part.function.decorators
                found.add(_method_of(state, part, each, node) if of_class else part)
            elif part.function.decorators & {"property", "cached_property"}:
                found |= invoke(state, part, [frozenset([each])], {}, node)
                if "cached_property" in part.function.decorators:
                    state.changed.add(each)
            elif part.bound or part in each.fields.get(name, ()) or "staticmethod" in part.function.decorators:
                found.add(part)  # a bound method is not bound again
            else:
                found.add(_method_of(state, part, each, node))
        if known and not each.names_field(name):
            found.add(each)  # an attribute that is not analysed may be the object itself
        if name in libraries.STORING and not each.names_field(name) and each.package is None:
            found.add(_method_of(state, each, each, (name, id(node))))
        elif each.data and not each.classes and name in libraries.MEASURES:
            continue
        elif each.opaque or each.package:
            found.add(each)
            found |= each.parts()
        elif name in ("__dict__", "__class__", "__wrapped__"):
            found |= {each, *(each.classes if name == "__class__" else ())}
        elif not known and each.classes:
            found |= call_methods(state, frozenset([each]), ("__getattr__", "__getattribute__"), [NOTHING], node)
            found |= each.parts()
    plain = {each for each in plain if each.function is None}
    found |= plain
    found |= call_methods(state, frozenset(plain), ("__get__",), [holder], node)
    return frozenset(found)


def attribute_value(state: AbstractState, holder: Value, name: str, node: ast.AST) -> Value:
    """Return the possible values of `holder.name` where it is stored or passed on, as in `seed = torch.manual_seed`.

    If `holder` is a package, this returns its member with the dotted path, where `attribute` returns the package
    itself. If `holder` is an object that holds a package, `holder.name` may be this package, or the package's attribute
    `name` (if the object forwards attributes), so both are returned.
    """
    found = attribute(state, holder, name, node)
    packages = [each for each in found if each.package]
    inner = [state.member(each, name) for each in packages]
    return NOTHING.union(found - {each for each in packages if each in holder}, *inner)


def _method_of(state: AbstractState, method: AbstractObject, holder: AbstractObject, node: object) -> AbstractObject:
    key = ("bound", id(method), id(holder), node if isinstance(node, tuple) else None)
    if key not in state.made:
        obj = state.made[key] = AbstractObject(function=method.function, bound=frozenset([holder]))
        obj.path = str(node[0]) if isinstance(node, tuple) and method.function is None else ""
        obj.holders.add(holder)
        holder.holders.add(obj)
    return state.made[key]


def methods_of_bases(state: AbstractState, value: Value, name: str, node: ast.AST) -> Value:
    """Return all methods with this name in the classes of `value` and their bases."""
    found: set[AbstractObject] = set()
    for each in value:
        queue = [each] if each.is_class else list(each.classes)
        while queue:
            cls = queue.pop()
            queue += cls.classes
            methods = [method for method in cls.fields.get(name, ()) if method.function]
            found |= {_method_of(state, method, each, (name, id(node))) for method in methods}
    return frozenset(found)


def call_methods(
    state: AbstractState, value: Value, names: Iterable[str], arguments: list[Value], node: ast.AST
) -> set[AbstractObject]:
    """Interpret calls of the methods `names` on those instances in `value` whose class defines them.

    `arguments` has the possible values of each argument. Returns the possible results.
    """
    state.spend(len(value))
    found: set[AbstractObject] = set()
    for each in value:
        if each.classes and not each.is_class:
            for name in names:
                for cls in each.classes:
                    for method in cls.find(name):
                        if method.function is not None and name in cls.all_fields():
                            found |= invoke(state, method, [frozenset([each]), *arguments], {}, node)
    return found


def apply(
    state: AbstractState, obj: AbstractObject, arguments: list[Value], keywords: dict[str, Value], node: ast.AST
) -> Value:
    """Interpret a call of a notebook object: a function, a method, a class, or an instance with `__call__`.

    `arguments` and `keywords` have the possible values of each argument. Returns the call's possible values.
    """
    if obj.function is not None:
        if obj.function.decorators & {"lru_cache", "cache"}:  # it keeps what it returns
            state.changed.add(obj)
        return invoke(state, obj, [*([obj.bound] if obj.bound else []), *arguments], keywords, node)
    if obj.is_class:
        return _instance(state, obj, arguments, keywords, node)
    found: set[AbstractObject] = set()
    for cls in obj.classes:
        for method in cls.find("__call__"):
            found |= invoke(state, method, [frozenset([obj]), *arguments], keywords, node)
    return frozenset(found)


def _instance(
    state: AbstractState, cls: AbstractObject, arguments: list[Value], keywords: dict[str, Value], node: ast.AST
) -> Value:
    """Return the possible results of calling a class: usually a new instance.

    The `__new__`, `__init__` and `__post_init__` of notebook code are interpreted. Where there are none, or the class
    has bases that are not analysed, the instance may store its arguments.
    """
    key = ("instance", id(cls), id(node))
    if key not in state.made:
        state.made[key] = AbstractObject(classes=[cls], opaque=cls.is_unseen(), data=cls.data)
        cls.holders.add(state.made[key])
    obj = state.made[key]
    itself: Value = frozenset([obj])
    made = set(itself)
    methods = [*cls.own_methods("__new__"), *cls.own_methods("__init__"), *cls.own_methods("__post_init__")]
    for method in cls.own_methods("__new__"):
        made |= invoke(state, method, [frozenset([cls]), *arguments], keywords, node)
    for name in ("__init__", "__post_init__"):
        for method in cls.own_methods(name):
            invoke(state, method, [itself, *(arguments if name == "__init__" else [])], keywords, node)
    for meta in cls.classes:
        for method in meta.own_methods("__call__"):
            made |= invoke(state, method, [frozenset([cls]), *arguments], keywords, node)
    if not methods or obj.opaque:
        obj.hold(NOTHING.union(*arguments))
        for name, value in keywords.items():
            obj.hold(value, name)
    if obj.opaque:
        draw(state, "torch", ("Linear",))
    return frozenset(made)
