"""Interpret calls of notebook functions, to find what they change, return and retain."""

from __future__ import annotations

import ast

from jupyter_ext.capture.facts import FunctionNode
from jupyter_ext.capture.follow.abstract_objects import NOTHING, AbstractFunction, AbstractObject, Value
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
    """Interpret a function's body; calls with the same arguments in one statement share the result."""
    function = thing.function
    assert function is not None
    key = (thing, tuple(arguments), frozenset(keywords.items()))
    if key in world.memo:
        return world.memo[key]
    world.memo[key] = NOTHING
    if world.stack >= _DEPTH or world.steps > min(world.left, _STEPS_OF_ONE):
        world.memo[key] = summarise(world, thing, arguments, keywords)
        return world.memo[key]
    frame = world.open(body(function.node).names, function.frame)
    for name, value in _bindings(world, function.node.args, arguments, keywords, thing):
        frame.values[name] = frame.values.get(name, NOTHING) | value
        frame.box.hold(value)
    outer, world.frame = world.frame, frame
    branches, world.branches = world.branches, 1
    world.stack += 1
    if isinstance(function.node, ast.Lambda):
        frame.results |= world.visit(function.node.body)
    else:
        world.visit_all(function.node.body)
    world.stack -= 1
    world.frame, world.branches = outer, branches
    world.memo[key] = frozenset(frame.results)
    return world.memo[key]


def _bindings(
    world: AbstractState,
    arguments: ast.arguments,
    given: list[Value],
    keywords: dict[str, Value],
    thing: AbstractObject,
) -> list[tuple[str, Value]]:
    """Return the parameters of the function with the values that the call binds to them."""
    names = [each.arg for each in [*arguments.posonlyargs, *arguments.args]]
    defaults: Value = frozenset(thing.fields.get("default", ()))
    found = list(zip(names, given, strict=False))
    rest: Value = NOTHING.union(*given[len(names) :])
    spread = keywords.get("**", NOTHING)
    known = {*names, *(each.arg for each in arguments.kwonlyargs)}
    found += [(name, value) for name, value in keywords.items() if name in known]
    found += [(name, frozenset(part for each in spread for part in each.parts())) for name in known if spread]
    found += [(name, defaults) for name in known if name not in dict(found) and defaults]
    for star in (arguments.vararg, arguments.kwarg):
        if star:
            more = (
                rest
                if star is arguments.vararg
                else NOTHING.union(*(value for name, value in keywords.items() if name not in known))
            )
            found.append((star.arg, frozenset([world.box(more | spread)])))
    return found
