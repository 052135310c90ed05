"""Interpret calls of notebook functions, to find the values that they change, return and retain."""

from __future__ import annotations

import ast

from jupyter_ext.capture.facts import FunctionNode
from jupyter_ext.capture.follow.abstract_objects import NOTHING, AbstractFunction, AbstractObject, LocalScope, Value
from jupyter_ext.capture.follow.abstract_state import AbstractState
from jupyter_ext.capture.follow.function_summary import summarise
from jupyter_ext.capture.follow.syntax import last_name
from jupyter_ext.capture.names import body

_STEPS_OF_ONE = 4_000  # nodes within functions that are interpreted for one statement; see AbstractState.left
_DEPTH = 40  # of calls within calls


def function(state: AbstractState, node: FunctionNode | ast.Lambda) -> AbstractObject:
    """Return the abstract object of a `def` or `lambda`, which refers to the defaults and the enclosing scopes."""
    key = ("function", id(node), id(state.frame))
    if key not in state.made:
        decorators = frozenset(last_name(each) for each in getattr(node, "decorator_list", []))
        obj = state.made[key] = AbstractObject(function=AbstractFunction(node, state.frame, decorators))
        frame = state.frame
        while frame is not None:
            obj.hold([frame.box], "closure")
            frame = frame.outer
    obj = state.made[key]
    arguments = node.args
    for default in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
        obj.hold(state.visit(default), "default")
    return obj


def invoke(
    state: AbstractState, obj: AbstractObject, arguments: list[Value], keywords: dict[str, Value], node: ast.AST
) -> Value:
    """Interpret a call of the notebook function `obj`, and return the call's possible values.

    `arguments` and `keywords` have the possible values of each argument. A generator function is not interpreted here:
    the call returns an iterator, and using this runs the body.
    """
    if obj.function is None:
        return NOTHING
    if not body(obj.function.node).yields:
        return enter(state, obj, arguments, keywords)
    iterator = state.make(("generator", id(obj), id(node)), stateful=True)
    iterator.call = (obj, arguments, keywords)
    iterator.hold(NOTHING.union(*arguments, *keywords.values()), "argument")
    iterator.hold([obj], "function")
    return frozenset([iterator])


def enter(state: AbstractState, obj: AbstractObject, arguments: list[Value], keywords: dict[str, Value]) -> Value:
    """Interpret the body of a called function, and return the function's possible results.

    Calls with equal arguments within a statement are interpreted once. The arguments of a recursive call are added to
    those of the outer call, whose body is then interpreted again until its possible values stay the same. Interpreting
    each recursive call separately would double the number of calls at each level where a library may call functions
    back.
    """
    function = obj.function
    assert function is not None
    if (running := state.running.get(function)) is not None:
        running.reentered = True
        _bind(state, running, obj, arguments, keywords)
        return frozenset(running.results)
    key = (obj, tuple(arguments), frozenset(keywords.items()))
    if key in state.memo:
        return state.memo[key]
    if state.stack >= _DEPTH or _is_spent(state):
        state.memo[key] = summarise(state, obj, NOTHING.union(*arguments, *keywords.values()))
        return state.memo[key]
    frame = state.open(body(function.node).names, function.frame)
    _bind(state, frame, obj, arguments, keywords)
    state.running[function] = frame
    known = len(state.memo)
    again = True
    while again:
        while len(state.memo) > known:  # drop results computed from incomplete results of this recursive function
            state.memo.popitem()
        frame.reentered, before = False, frame.size()
        _interpret(state, function.node, frame)
        again = frame.reentered and frame.size() > before
        if again and _is_spent(state):
            frame.results |= summarise(state, obj, NOTHING.union(*frame.values.values()))
            again = False
    del state.running[function]
    state.memo[key] = frozenset(frame.results)
    return state.memo[key]


def _is_spent(state: AbstractState) -> bool:
    """Return True if the interpreter has visited as many syntax nodes or objects as it may for one statement."""
    return state.steps > min(state.left, _STEPS_OF_ONE) or 2 * state.work > state.most_work


def _interpret(state: AbstractState, node: FunctionNode | ast.Lambda, frame: LocalScope) -> None:
    """Interpret a function's body; `frame` is the scope of the call, with the values of its arguments."""
    outer, state.frame = state.frame, frame
    branches, state.branches = state.branches, 1
    state.stack += 1
    if isinstance(node, ast.Lambda):
        frame.results |= state.visit(node.body)
    else:
        state.visit_all(node.body)
    state.stack -= 1
    state.frame, state.branches = outer, branches


def _bind(
    state: AbstractState,
    frame: LocalScope,
    obj: AbstractObject,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> None:
    """Add the arguments of a call to the possible values of the function's parameters.

    `frame` is the scope of the call. Parameters that get no argument have their defaults.
    """
    assert obj.function is not None
    spec = obj.function.node.args
    names = [each.arg for each in [*spec.posonlyargs, *spec.args]]
    defaults: Value = frozenset(obj.fields.get("default", ()))
    found = list(zip(names, arguments, strict=False))
    spread = keywords.get("**", NOTHING)
    known = {*names, *(each.arg for each in spec.kwonlyargs)}
    found += [(name, value) for name, value in keywords.items() if name in known]
    found += [(name, frozenset(part for each in spread for part in each.parts())) for name in known if spread]
    found += [(name, defaults) for name in known if name not in dict(found) and defaults]
    more = NOTHING.union(*(value for name, value in keywords.items() if name not in known))
    for star, rest in ((spec.vararg, NOTHING.union(*arguments[len(names) :])), (spec.kwarg, more)):
        if star:
            holders = frame.values.get(star.arg) or frozenset([state.box(NOTHING)])
            for each in holders:
                each.hold(rest | spread)
            found.append((star.arg, holders))
    for name, value in found:
        frame.values[name] = frame.values.get(name, NOTHING) | value
        frame.box.hold(value)
