"""Interpret calls of code outside the notebook, using the assumptions in `libraries`."""

from __future__ import annotations

import ast

from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.follow.abstract_objects import ELEMENTS, NOTHING, AbstractObject, Value, parts_of
from jupyter_ext.capture.follow.abstract_state import AbstractState
from jupyter_ext.capture.follow.iteration import iterate
from jupyter_ext.capture.follow.mutations import (
    change,
    change_package,
    contain,
    draw,
    in_order,
    is_training,
    mark_unknown,
    need_gradients,
    train,
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
    scalar = data = trains = bool(packages)
    given_one = libraries.seeded(node) or any(value.stateful and not value.assumed for value in every)
    for each in packages:
        inner = tuple(each.path.split(".")) if each.path else ()
        full = (*inner, *path) if isinstance(node.func, ast.Attribute) or not inner else inner
        name = full[-1] if full else name
        scalar = scalar and libraries.is_scalar(each.package, name or "")
        data = data and libraries.makes_data(each.package or "", full, node)
        trains = trains and libraries.only_trains(each.package, full, node)
        if (own := random_use(each.package or "", full)) is not None and full:
            use_random(state, own)
        elif not given_one or libraries.seeds(name or ""):
            draw(state, each.package or "", full, surely=True)
        state.out.by_chance = state.out.by_chance or libraries.by_chance(each.package or "", full, node)
        if isinstance(node.func, ast.Attribute) and libraries.sets(full) and each in receiver:
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
    if libraries.shares_memory(name, node):
        need_gradients(every | receiver)
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
    if dropped and not drawing and not libraries.only_looks(name, path):  # `train(..., evals_result=results)`
        change(state, [each for value in keywords.values() for each in value if not (each.opaque or each.linked())])
    _convert(state, every | parts_of(receiver) if name in libraries.COMPARING else every, node)
    _called_back(state, receiver | callee, every, node, anything=dropped)
    if keywords.get("out"):
        change(state, keywords["out"])
    objects = frozenset(each for each in receiver if each.package is None)
    _run_layers(state, callee - receiver)
    if (packages and not objects) or (isinstance(node.func, ast.Attribute) and is_type(node.func.value, receiver)):
        _affect_given(state, node, name, arguments, every, dropped=dropped and not drawing, path=path, trains=trains)
        if data and name[:1].islower():  # such functions keep no generator, as loaders do
            every -= {each for keyword in libraries.SEED_ARGUMENTS for each in keywords.get(keyword, NOTHING)}
        found = _result(state, node, name, arguments, every, data=data)
        for each in found:
            first = arguments[0] if arguments else NOTHING
            each.origin = each.origin or _origin(package, name, node, first=first)
            each.learns = each.learns or "BatchNorm" in name
            each.draws = each.draws or (name == "DataLoader" and not libraries.seeded(node))
        if name in libraries.SHARED and package is not None:
            for each in found:
                each.holders |= state.package(package)
        return NOTHING if scalar else found
    if isinstance(node.func, ast.Attribute):
        return _of_object(state, node, name, objects, arguments, every, dropped=dropped, path=path)
    trains = is_training(state, callee)
    _affect_given(state, node, name, arguments, every | callee, dropped=dropped, path=path, trains=trains)
    return _result(state, node, name, arguments, every | callee, data=bool(callee))


def _run_layers(state: AbstractState, called: Value) -> None:
    """Record what calling torch modules changes: random draws (dropout), and running statistics (BatchNorm).

    `called` has the objects that may be called; all modules that can be reached from them count as called as well.
    """
    layers = [each for each in state.reach(called) if each.opaque and each.function is None]
    if any(each.origin == "torch" for each in layers):
        draw(state, "torch", ("dropout",))
    change(state, [each for each in layers if each.learns])


def _origin(package: str | None, name: str, node: ast.Call, first: Value) -> str | None:
    """Return the package that made the result of a call, or None if it is unknown, or may overwrite what it is given.

    `package` is that of the called function, `name` the function's name, and `first` the possible values of the first
    argument. For mocks it is the mocked package: `os` for `mock.patch("os.getlogin")`.
    """
    if libraries.overwrites(node):
        return None
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


def _affect_given(
    state: AbstractState,
    node: ast.Call,
    name: str,
    arguments: list[Value],
    every: Value,
    *,
    dropped: bool,
    path: tuple[str, ...],
    trains: bool,
) -> None:
    first = arguments[0] if arguments else NOTHING
    held = NOTHING.union(*arguments[1:]) if arguments else NOTHING
    unbound = isinstance(node.func, ast.Attribute) and name in libraries.STORING and len(arguments) > 0
    if name in libraries.CHANGING_FUNCTIONS or libraries.changes(name) or unbound:
        change(state, first, deep=name not in libraries.CHANGING_FUNCTIONS and not unbound)
        for each in first:
            each.hold(held)
        mark_unknown(state, node.args[:1])
    elif dropped and not libraries.only_looks(name, path):
        _change(state, every, trains=trains)
        mark_unknown(state, [*([] if trains else node.args), *(each.value for each in node.keywords)])


def _change(state: AbstractState, value: Value, *, trains: bool) -> None:
    """Mark as changed these objects and what they hold; only what a training changes if the call surely `trains`."""
    if trains:
        train(state, value)
    else:
        change(state, value, deep=True)


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
    trains = name == "backward" or is_training(state, objects)
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
        only_trains = trains and (name in libraries.CHANGING or name == "requires_grad_") and not inplace
        _change(state, objects, trains=only_trains)
        for each in objects:
            each.hold(every)
        mark_unknown(state, [func.value])
        if name.endswith("_") or dropped:
            _change(state, every, trains=trains)
    elif not dropped and libraries.keeps(name):
        change(state, objects)
        for each in objects:
            each.hold(every)
        mark_unknown(state, [func.value])
    elif dropped and not libraries.only_looks(name, path):
        change(state, objects)
        _change(state, objects | every, trains=trains)
        unknown = [func.value, *([] if trains else node.args), *(each.value for each in node.keywords)]
        mark_unknown(state, unknown)
        for each in objects:
            each.hold(every)
    made_from = frozenset(each for each in objects if not _draws_values(each, name))
    if any(each.stateful for each in made_from):
        every |= made_from
    if name in libraries.MEASURES and objects and all(each.data for each in objects):
        return NOTHING
    if name in libraries.FRESH:
        return _fresh(state, node, made_from | every)
    unordered = any(each.unordered for each in objects) and name in libraries.OF_SETS
    if name in libraries.COPYING:
        return state.holding(node, parts_of(made_from), unordered=unordered)
    if not node.args or name in libraries.SAME:
        found = frozenset(made_from if name in libraries.VIEWS else made_from | parts_of(made_from) | every)
        return found | _made(state, node, found | every, data=bool(objects))
    used = frozenset(each for each in made_from if each.stateful)
    return used | _made(state, node, made_from | every, data=bool(objects), unordered=unordered)


def _draws_values(obj: AbstractObject, method: str) -> bool:
    """Return True if `obj` is a random generator whose method returns numbers, or what it is given."""
    return obj.stateful and obj.origin in libraries.STATES and method not in libraries.SPAWNING


def _made(state: AbstractState, node: ast.Call, value: Value, *, data: bool, **more: bool) -> Value:
    """Return the object that a call returns, which holds `value`; it is data only if it is so whenever it is made."""
    found = state.holding(node, value, opaque=True, data=True, **more)
    if not data or any(each.arg == "requires_grad" for each in node.keywords):
        need_gradients(found)
    return found


def _fresh(state: AbstractState, node: ast.Call, copied: Value) -> Value:
    """Return the object that a call returns which shares nothing with the `copied` objects, but is of their kind."""
    reached = state.reach(copied)
    found = _made(state, node, NOTHING, data=all(each.data for each in reached if each.opaque))
    for each in found:
        each.origin = each.origin or ("torch" if is_training(state, copied) else None)
    return found


def _result(
    state: AbstractState, node: ast.Call, name: str, arguments: list[Value], every: Value, *, data: bool
) -> Value:
    """Return the possible values of a call of a function, which are `data` if it surely returns nothing else."""
    if name in libraries.SCALAR and isinstance(node.func, ast.Name):
        return NOTHING
    if name in libraries.STATEFUL:
        return state.holding(node, every | parts_of(every), stateful=True)
    if name in libraries.FRESH:
        return _fresh(state, node, every)
    if name in libraries.COPYING:
        if name == "defaultdict":
            return state.holding(node, parts_of(every), grows=True)
        named = NOTHING.union(*[every & state.visit(each.value) for each in node.keywords])
        inside = parts_of(every) | named | {each for each in every if each.function or each.is_class}
        return state.holding(node, inside, unordered=name in ("set", "frozenset"))
    if name in libraries.SAME:
        return every | parts_of(every)
    found = _made(state, node, every, data=data)
    if name == "SubElement" and arguments:
        for each in arguments[0]:
            each.hold(found)
    return found
