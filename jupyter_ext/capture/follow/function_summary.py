"""Summarise a function from its source: the objects that it can reach, and whether it may change them.

A summary replaces the interpretation of calls that are nested too deeply or too many, and of whole statements that
would take too long. It assumes more effects than these have, never fewer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from jupyter_ext.capture.facts import Statement
from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.follow.abstract_objects import NOTHING, AbstractFunction, AbstractObject, Value
from jupyter_ext.capture.follow.abstract_state import AbstractState
from jupyter_ext.capture.follow.mutations import change_package
from jupyter_ext.capture.follow.syntax import Code, is_globals, text_of

_ANY_CLASS = {"cls", "type", "setattr"}


def summarise(state: AbstractState, obj: AbstractObject, given: Value) -> Value:
    """Apply a call without interpreting the body: if the function writes anything, all objects it can reach change.

    `obj` is the function, and `given` has the possible values of its arguments. A repeated call in the same statement
    is applied only if it passes new objects. Returns the call's possible values.
    """
    assert obj.function is not None
    value = state.holding(obj.function.node, given, opaque=True, assumed=True)
    state.spend(len(given))
    before = state.summarised.get(obj)
    if before is not None and given <= before:
        return value
    state.summarised[obj] = given | (before or NOTHING)
    code, reached = _reached(state, obj, given)
    state.spend(len(reached))
    _affect(state, code, reached, value)
    return value


def summarise_statement(state: AbstractState, statement: Statement) -> None:
    """Apply a statement without interpreting it: all objects that it can reach change, and then refer to each other."""
    names = [each for each in statement.binds if each not in statement.imports]
    names += _bound_by_text(statement.nodes)
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    head = [ast.Global(names)] if names else []
    node = ast.FunctionDef("", nothing, [*head, *statement.nodes], [])
    obj = AbstractObject(function=AbstractFunction(node, None, frozenset()))
    code, reached = _reached(state, obj, NOTHING)
    own = [each for each in reached if each.package is None and each is not obj]
    may_be = dict.fromkeys(("opaque", "stateful", "grows", "learns", "draws", "assumed"), True)
    value = state.holding(node, own, **may_be)
    for each in own:
        each.hold(value)
    _affect(state, code, reached, value)


def _bound_by_text(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that `globals()["x"] = 1` or `globals().update(x=1)` may bind, if these nodes call `globals`."""
    every = [each for node in nodes for each in ast.walk(node)]
    if any(map(is_globals, every)):
        for each in every:
            name = each.value if isinstance(each, ast.Constant) else getattr(each, "arg", None)
            if isinstance(name, str) and name.isidentifier():
                yield name


def _affect(state: AbstractState, code: Code, reached: set[AbstractObject], value: Value) -> None:
    """Apply the assumed effects of code that is not interpreted, on the objects that it can reach.

    `value` has the values that it may bind to the names that it declares `global`.
    """
    state.out.read |= code.names
    for name in code.declared:
        state.bind_weakly(name, value)
    for each in reached:
        if each.package:
            state.out.drawn |= libraries.random_states(each.package)
            for method in code.sets:
                change_package(state, each.package, (*filter(None, each.path.split(".")), method))
                state.out.perhaps_seeded |= libraries.random_effect(each.package, ("random", method))[0]
        elif code.writes and each.function is None:
            if not each.is_class or (each.names | _ANY_CLASS) & code.stored:
                state.changed.add(each)
            each.opaque = each.opaque or not each.is_class
            each.data = False


def _reached(state: AbstractState, obj: AbstractObject, given: Value) -> tuple[Code, set[AbstractObject]]:
    """Return the names that a call's reachable functions use, and the objects that the call can reach.

    `obj` is the called function, and `given` has the possible values of its arguments.
    """
    code = _by_name(state, obj)
    seen = {obj, *given, *_named(state, code)}
    queue = list(seen)
    while queue:
        each = queue.pop()
        if each.package:
            continue
        found = each.linked()
        if each.function is not None and each is not obj:
            more = _by_name(state, each)
            if not more.names <= code.names:
                found.update(_named(state, more))
            code |= more
        found -= seen
        seen |= found
        queue += found
    return code, seen


def _named(state: AbstractState, code: Code) -> Iterator[AbstractObject]:
    """Yield the objects to which names in `code` may refer, except plain functions.

    These are left out because `code` already includes the names that their source uses.
    """
    for name in code.names:
        for each in state.globals.get(name, ()):
            if each.function is None or each.fields or each.bound:
                yield each


def _by_name(state: AbstractState, obj: AbstractObject) -> Code:
    """Return the names that a function and all functions named in it use; cached until one of them is rebound."""
    if obj in state.code:
        return state.code[obj]
    assert obj.function is not None
    code, seen, queue = text_of(obj.function.node), {obj}, [obj]
    while queue:
        each = queue.pop()
        if each in state.code:
            code |= state.code[each]
        elif each.function is not None:
            own = text_of(each.function.node)
            code |= own
            named = [other for name in own.names for other in state.globals.get(name, ()) if other.function]
            queue += [other for other in named if other not in seen]
            seen.update(named)
    state.code[obj] = code
    return code
