"""Interpret calls of code outside the notebook, using the assumptions in `libraries`."""

from __future__ import annotations

import ast

from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.follow.abstract_objects import ELEMENTS, NOTHING, Value, parts_of
from jupyter_ext.capture.follow.abstract_state import AbstractState
from jupyter_ext.capture.follow.iteration import iterate
from jupyter_ext.capture.follow.mutations import (
    change,
    change_package,
    contain,
    draw,
    in_order,
    mark_unknown,
    use,
    use_random,
)
from jupyter_ext.capture.follow.objects import apply, call_methods
from jupyter_ext.capture.follow.sources import random_use, random_use_of_method
from jupyter_ext.capture.follow.syntax import is_type
from jupyter_ext.capture.names import root

# Special methods that external code may call on its arguments.
_ASKED = (
    *("__iter__", "__next__", "__len__", "__str__", "__repr__", "__format__", "__float__", "__int__", "__bool__"),
    *("__index__", "__hash__", "__abs__", "__round__", "__reversed__", "__eq__", "__lt__", "__fspath__"),
)
_MAKING = {"__init__", "__new__", "__init_subclass__", ELEMENTS}


def call_external(
    state: AbstractState,
    node: ast.Call,
    receiver: Value,
    callee: Value,
    arguments: list[Value],
    keywords: dict[str | None, Value],
    *,
    dropped: bool,
) -> Value:
    """Apply the assumed effects of calling code outside the notebook, and return the call's possible values.

    `node` is the call. `receiver` has the possible values of the object before the dot, `callee` those of the called
    function, `arguments` those of each positional argument, and `keywords` those of each keyword argument. `dropped` is
    True if the statement discards the value of the call.
    """
    root_name, path = root(node.func)
    name = path[-1] if path else root_name
    given = [*arguments, *keywords.values()]
    every = NOTHING.union(*given)
    state.spend(len(every) + len(callee) + len(receiver))
    packages = {each for each in callee | receiver if each.package}
    package = next(iter(packages)).package if packages else None
    scalar = bool(packages)
    given_one = libraries.seeded(node) or any(value.stateful and not value.assumed for value in every)
    for each in packages:
        inner = tuple(each.path.split(".")) if each.path else ()
        full = (*inner, *path) if isinstance(node.func, ast.Attribute) or not inner else inner
        name = full[-1] if full else name
        scalar = scalar and libraries.is_scalar(each.package, name or "")
        if (own := random_use(each.package or "", full)) is not None and full:
            use_random(state, own)
        elif not given_one or libraries.seeds(name or ""):
            draw(state, each.package or "", full, surely=True)
        state.out.by_chance = state.out.by_chance or libraries.by_chance(each.package or "", full, node)
        if isinstance(node.func, ast.Attribute) and libraries.sets(path) and each in receiver:
            change_package(state, each.package or "", path)
        elif not isinstance(node.func, ast.Attribute) and libraries.sets(inner):
            change_package(state, each.package or "", inner)
    for each in parts_of(callee) - callee:  # of a `partial`
        if each.package and each.path:
            draw(state, each.package, tuple(each.path.split(".")))
    name = name or ""
    for each in receiver:
        if each.package is None and each.origin is not None:
            use_random(state, random_use_of_method(each.origin, name))
    if not packages and (drawn_from := libraries.draws_by_method(name, node)) is not None:
        draw(state, drawn_from, ("random", "rand"), surely=True)
    if name in libraries.ORDERING:
        in_order(state, every | receiver if name == "pop" else every)
    if name == "reload":
        for each in every:
            if each.package is not None:
                change_package(state, each.package, (name,))
    drawing = package in libraries.DRAWING
    use(state, every)
    for each in every | parts_of(every):
        if each.function is not None or each.is_class or each.is_callable():
            others = frozenset(every - {each})
            apply(state, each, [others | parts_of(others)] * 2, {}, node)
        elif each.path and each.bound:
            contain(state, each.path, each.bound, given)
    for each in every:
        if each.stateful or (each.opaque and name in libraries.ORDERING):
            iterate(state, frozenset([each]))
    _convert(state, every | parts_of(receiver) if name in libraries.COMPARING else every, node)
    _called_back(state, receiver | callee, every, node, anything=dropped)
    if keywords.get("out"):
        change(state, keywords["out"])
    objects = frozenset(each for each in receiver if each.package is None)
    _run_layers(state, callee - receiver)
    if (packages and not objects) or (isinstance(node.func, ast.Attribute) and is_type(node.func.value, receiver)):
        found = _of_module(state, node, name, arguments, every, dropped=dropped and not drawing, path=path)
        for each in found:
            each.origin = each.origin or _origin(package, name, node, first=arguments[0] if arguments else NOTHING)
            each.learns = each.learns or "BatchNorm" in name
            each.draws = each.draws or (name == "DataLoader" and not libraries.seeded(node))
        if name in libraries.SHARED and package is not None:
            for each in found:
                each.holders |= state.package(package)
        return NOTHING if scalar else found
    if isinstance(node.func, ast.Attribute):
        return _of_object(state, node, name, objects, arguments, every, dropped=dropped, path=path)
    return _of_module(state, node, name, arguments, every | callee, dropped=dropped, path=path)


def _run_layers(state: AbstractState, called: Value) -> None:
    """Record what calling torch modules changes: random draws (dropout), and running statistics (BatchNorm).

    `called` has the objects that may be called; all modules that can be reached from them count as called as well.
    """
    layers = [each for each in state.reach(called) if each.opaque and each.function is None]
    if any(each.origin == "torch" for each in layers):
        draw(state, "torch", ("dropout",))
    change(state, [each for each in layers if each.learns])


def _origin(package: str | None, name: str, node: ast.Call, first: Value) -> str | None:
    """Return the package that made the result of a call, or None if it is unknown.

    `package` is that of the called function, `name` the function's name, and `first` the possible values of the first
    argument. For mocks it is the mocked package: `os` for `mock.patch("os.getlogin")`.
    """
    named = node.args[0] if node.args else None
    if name == "patch" and isinstance(named, ast.Constant) and isinstance(named.value, str):
        return named.value.partition(".")[0]
    if package == "unittest":
        return next((each.package for each in first if each.package), package)
    return package


def _called_back(state: AbstractState, value: Value, given: Value, node: ast.AST, *, anything: bool) -> None:
    """Interpret calls of the functions and methods that a library's object holds, as the library may call them.

    `value` has the library's objects, and `given` the values that were passed to the library, which it may pass on.
    With `anything`, it may call all methods of the instances that it holds, else only `forward`.
    """
    known = frozenset(obj for obj in value if obj.opaque and obj.package is None)
    given |= parts_of(known) - known
    for each in state.reach(known):
        if each.function is not None:
            apply(state, each, [given, given], {}, node)
        elif each.path and each.bound:
            contain(state, each.path, each.bound, [given])
        elif each.classes and not each.is_class:
            names = set().union(*[cls.all_fields() for cls in each.classes]) - _MAKING if anything else {"forward"}
            call_methods(state, frozenset([each]), sorted(names), [given, given], node)


def _convert(state: AbstractState, value: Value, node: ast.AST) -> None:
    for each in value | parts_of(value):
        if each.classes and not each.is_class:
            call_methods(state, frozenset([each]), _ASKED, [NOTHING], node)


def _of_module(
    state: AbstractState,
    node: ast.Call,
    name: str,
    arguments: list[Value],
    every: Value,
    *,
    dropped: bool,
    path: tuple[str, ...],
) -> Value:
    first = arguments[0] if arguments else NOTHING
    held = NOTHING.union(*arguments[1:]) if arguments else NOTHING
    unbound = isinstance(node.func, ast.Attribute) and name in libraries.STORING and len(arguments) > 0
    if name in libraries.CHANGING_FUNCTIONS or libraries.changes(name) or unbound:
        change(state, first, deep=name not in libraries.CHANGING_FUNCTIONS and not unbound)
        for each in first:
            each.hold(held)
        mark_unknown(state, node.args[:1])
    elif dropped and not libraries.only_looks(name, path):
        change(state, every, deep=True)
        mark_unknown(state, [*node.args, *(each.value for each in node.keywords)])
    found = _result(state, node, name, every)
    if name == "SubElement":
        for each in first:
            each.hold(found)
    return found


def _of_object(
    state: AbstractState,
    node: ast.Call,
    name: str,
    objects: Value,
    arguments: list[Value],
    every: Value,
    *,
    dropped: bool,
    path: tuple[str, ...],
) -> Value:
    func = node.func
    assert isinstance(func, ast.Attribute)
    for each in objects:
        if each.stateful:
            iterate(state, frozenset([each]))
    if name in libraries.ENTERING:
        for each in objects | every:
            if each.origin is not None:
                change_package(state, each.origin, (name,))
    inplace = any(each.arg == "inplace" for each in node.keywords)
    if name in libraries.STORING:
        contain(state, name, objects, arguments)
        mark_unknown(state, [func.value])
    elif libraries.changes(name) or inplace:
        change(state, objects, deep=True)
        for each in objects:
            each.hold(every)
        mark_unknown(state, [func.value])
        if name.endswith("_") or dropped:
            change(state, every, deep=True)
    elif not dropped and libraries.keeps(name):
        change(state, objects)
        for each in objects:
            each.hold(every)
        mark_unknown(state, [func.value])
    elif dropped and not libraries.only_looks(name, path):
        change(state, objects | every, deep=True)
        mark_unknown(state, [func.value, *node.args, *(each.value for each in node.keywords)])
        for each in objects:
            each.hold(every)
    for each in objects:
        if each.stateful:
            every |= objects
    if name in libraries.FRESH:
        return state.holding(node, NOTHING, opaque=True)
    unordered = any(each.unordered for each in objects) and name in libraries.OF_SETS
    if name in libraries.COPYING:
        return state.holding(node, parts_of(objects), unordered=unordered)
    if not node.args or name in libraries.SAME:
        found = frozenset(objects | parts_of(objects) | every)
        return found | state.holding(node, found, opaque=True)
    used = frozenset(each for each in objects if each.stateful)
    return used | state.holding(node, objects | every, opaque=True, unordered=unordered)


def _result(state: AbstractState, node: ast.Call, name: str, every: Value) -> Value:
    if name in libraries.SCALAR and isinstance(node.func, ast.Name):
        return NOTHING
    if name in libraries.STATEFUL:
        return state.holding(node, every | parts_of(every), stateful=True)
    if name in libraries.FRESH:
        return state.holding(node, NOTHING, opaque=True)
    if name in libraries.COPYING:
        if name == "defaultdict":
            return state.holding(node, parts_of(every), grows=True)
        named = NOTHING.union(*[every & state.visit(each.value) for each in node.keywords])
        inside = parts_of(every) | named | {each for each in every if each.function or each.is_class}
        return state.holding(node, inside, unordered=name in ("set", "frozenset"))
    if name in libraries.SAME:
        return every | parts_of(every)
    return state.holding(node, every, opaque=True)
