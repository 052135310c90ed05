"""Interpret the iteration over an iterable."""

from __future__ import annotations

import ast

from jupyter_ext.capture.follow.abstract_objects import NOTHING, AbstractObject, Value, parts_of
from jupyter_ext.capture.follow.abstract_state import AbstractState
from jupyter_ext.capture.follow.functions import enter
from jupyter_ext.capture.follow.mutations import contain, draw, in_order, use
from jupyter_ext.capture.follow.objects import apply, call_methods
from jupyter_ext.capture.names import body

_NOWHERE = ast.Pass()  # placeholder node for calls that the loop itself makes


def iterate(state: AbstractState, value: Value) -> Value:
    """Interpret an iteration over these objects up to the end, and return the possible values of the elements."""
    use(state, value)
    in_order(state, value)
    if any(each.draws for each in state.reach(value)):
        draw(state, "torch", ("randperm",))
    found = set(parts_of(value))
    for each in value:
        if each.call is not None:
            results = enter(state, *each.call)
            found |= results if body(each.call[0].function.node).yields else parts_of(results)  # type: ignore[union-attr]
            each.hold(found)
        elif each.stateful:  # `map(f, xs)`
            for part in state.reach([each]) - {each}:
                use(state, [part])
                if part.function is not None:
                    found |= apply(state, part, [parts_of([each])], {}, _NOWHERE)
                if part.path and part.bound:
                    contain(state, part.path, part.bound, [parts_of([each])])
        elif each.opaque and each.package is None:  # a DataLoader draws from the generator passed to it
            use(state, state.reach([each]))
    found |= _by_methods(state, value)
    return frozenset(found)


def _by_methods(state: AbstractState, value: Value) -> set[AbstractObject]:
    found = call_methods(state, value, ("__iter__", "__aiter__"), [], _NOWHERE)
    return found | call_methods(state, value | found, ("__next__", "__anext__", "__getitem__"), [NOTHING], _NOWHERE)
