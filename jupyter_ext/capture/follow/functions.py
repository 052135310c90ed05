"""Interpret calls of notebook functions, to find what they change, return and retain."""

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


def function(world: AbstractState, node: FunctionNode | ast.Lambda) -> AbstractObject:
    """Return the abstract object of a `def` or `lambda`; it holds the default values and the enclosing scopes."""
    key = ("function", id(node), id(world.frame))
    if key not in world.made:
        decorators = frozenset(last_name(each) for each in getattr(node, "decorator_list", []))
        thing = world.made[key] = AbstractObject(function=AbstractFunction(node, world.frame, decorators))
        frame = world.frame
        while frame is not None:
            thing.hold([frame.box], "closure")
            frame = frame.outer
    thing = world.made[key]
    arguments = node.args
    for default in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
        thing.hold(world.visit(default), "default")
    return thing


def invoke(
    world: AbstractState, thing: AbstractObject, arguments: list[Value], keywords: dict[str, Value], node: ast.AST
) -> Value:
    """Interpret a function call; for a generator function, return an iterator that runs the body when used."""
    if thing.function is None:
        return NOTHING
    if not body(thing.function.node).yields:
        return enter(world, thing, arguments, keywords)
    iterator = world.make(("generator", id(thing), id(node)), stateful=True)
    iterator.call = (thing, arguments, keywords)
    iterator.hold(NOTHING.union(*arguments, *keywords.values()), "argument")
    iterator.hold([thing], "function")
    return frozenset([iterator])


def enter(world: AbstractState, thing: AbstractObject, arguments: list[Value], keywords: dict[str, Value]) -> Value:
    """Interpret a function's body; calls with the same arguments in one statement share the result.

    A call from within a call of the same function adds its arguments to those of the outer call, whose body is then
    interpreted again: otherwise functions that a library may call back would call each other at each use of an
    argument, with what the last call made, and double in number with each level.
    """
    function = thing.function
    assert function is not None
    if (running := world.running.get(function)) is not None:
        running.reentered = True
        _bind(world, running, thing, arguments, keywords)
        return frozenset(running.results)
    key = (thing, tuple(arguments), frozenset(keywords.items()))
    if key in world.memo:
        return world.memo[key]
    if world.stack >= _DEPTH or _is_spent(world):
        world.memo[key] = summarise(world, thing, NOTHING.union(*arguments, *keywords.values()))
        return world.memo[key]
    frame = world.open(body(function.node).names, function.frame)
    _bind(world, frame, thing, arguments, keywords)
    world.running[function] = frame
    known = len(world.memo)
    again = True
    while again:
        while len(world.memo) > known:  # results that were made from too few of this function's own
            world.memo.popitem()
        frame.reentered, before = False, frame.size()
        _interpret(world, function.node, frame)
        again = frame.reentered and frame.size() > before
        if again and _is_spent(world):
            frame.results |= summarise(world, thing, NOTHING.union(*frame.values.values()))
            again = False
    del world.running[function]
    world.memo[key] = frozenset(frame.results)
    return world.memo[key]


def _is_spent(world: AbstractState) -> bool:
    """Return whether enough nodes were interpreted for this statement."""
    return world.steps > min(world.left, _STEPS_OF_ONE)


def _interpret(world: AbstractState, node: FunctionNode | ast.Lambda, frame: LocalScope) -> None:
    """Interpret a function's body in the scope of a call."""
    outer, world.frame = world.frame, frame
    branches, world.branches = world.branches, 1
    world.stack += 1
    if isinstance(node, ast.Lambda):
        frame.results |= world.visit(node.body)
    else:
        world.visit_all(node.body)
    world.stack -= 1
    world.frame, world.branches = outer, branches


def _bind(
    world: AbstractState,
    frame: LocalScope,
    thing: AbstractObject,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> None:
    """Add what a call passes to the possible values of the function's parameters."""
    assert thing.function is not None
    spec = thing.function.node.args
    names = [each.arg for each in [*spec.posonlyargs, *spec.args]]
    defaults: Value = frozenset(thing.fields.get("default", ()))
    found = list(zip(names, arguments, strict=False))
    spread = keywords.get("**", NOTHING)
    known = {*names, *(each.arg for each in spec.kwonlyargs)}
    found += [(name, value) for name, value in keywords.items() if name in known]
    found += [(name, frozenset(part for each in spread for part in each.parts())) for name in known if spread]
    found += [(name, defaults) for name in known if name not in dict(found) and defaults]
    more = NOTHING.union(*(value for name, value in keywords.items() if name not in known))
    for star, rest in ((spec.vararg, NOTHING.union(*arguments[len(names) :])), (spec.kwarg, more)):
        if star:
            holders = frame.values.get(star.arg) or frozenset([world.box(NOTHING)])
            for each in holders:
                each.hold(rest | spread)
            found.append((star.arg, holders))
    for name, value in found:
        frame.values[name] = frame.values.get(name, NOTHING) | value
        frame.box.hold(value)
