"""Record changes of objects, packages, random states, and names with unknown values."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.follow.abstract_objects import NOTHING, AbstractObject, Value, parts_of
from jupyter_ext.capture.follow.abstract_state import AbstractState
from jupyter_ext.capture.follow.sources import RandomUse
from jupyter_ext.capture.names import root

_SPREADING = {"extend", "extendleft", "update", "__iadd__"}


def change(state: AbstractState, value: Iterable[AbstractObject], *, deep: bool = False) -> None:
    """Mark objects as changed; with `deep`, also all objects that they hold, as unknown code may change these, too."""
    found = state.reach(value) if deep else value
    for each in found:
        if each.package is None:
            state.changed.add(each)
            if deep:
                each.opaque, each.data = True, False


def train(state: AbstractState, value: Iterable[AbstractObject]) -> None:
    """Mark as changed what a training may change of these objects and of all that they hold.

    These are models, optimizers, leaf tensors with gradients and the like, and not the data that was computed with.
    """
    for each in state.reach(value):
        if each.opaque and not each.data and not each.is_class and each.function is None:
            state.changed.add(each)


def is_training(state: AbstractState, value: Iterable[AbstractObject]) -> bool:
    """Return True if these objects and all their parts are data, or come from packages whose calls only train."""
    opaque = [each for each in state.reach(value) if each.opaque and each.function is None]
    for each in opaque:
        origin = each.origin or next((cls.origin for cls in each.classes if cls.origin), None)
        derived = origin is None and bool(each.fields) and not each.assumed
        if not (each.data or derived or origin in libraries.TRAINING):
            return False
    return bool(opaque)


def need_gradients(value: Iterable[AbstractObject]) -> None:
    """Let these objects be changed by trainings from here on."""
    for each in value:
        each.data = False


def use(state: AbstractState, value: Iterable[AbstractObject]) -> None:
    """Mark as changed those of these objects that change when they are used: iterators and random generators."""
    for each in value:
        if each.stateful:
            state.changed.add(each)


def change_package(state: AbstractState, package: str, path: tuple[str, ...]) -> None:
    """Mark `path` in a package as changed, except if the statement sets a secret, which snapshots must not contain."""
    if state.sets_secret:
        return
    if path and ({(package, path[0]), (package, path[-1])} & libraries.AMBIENT or package == "builtins"):
        state.out.ambient = True
    if path and package == "builtins":
        state.out.bound.add(path[0])
    state.changed |= state.package(package)


def draw(state: AbstractState, package: str, path: tuple[str, ...], *, surely: bool = False) -> None:
    """Record that a call into a package may draw random numbers or seed a generator (with `surely`: certainly does)."""
    seeded, drawn = libraries.random_effect(package, path)
    state.out.seeded |= seeded
    state.out.drawn |= drawn
    state.out.surely_drawn |= drawn if surely else set()


def use_random(state: AbstractState, use: RandomUse) -> None:
    """Record that the statement calls project code that seeds random states or draws from them, as `use` says."""
    state.out.seeded |= use.seeded
    state.out.perhaps_seeded |= use.perhaps
    state.out.drawn |= use.drawn
    state.out.surely_drawn |= use.drawn - use.seeded - use.perhaps


def in_order(state: AbstractState, value: Iterable[AbstractObject]) -> None:
    """Record that the statement's result depends on the iteration order of these objects.

    This matters if one is a set, as the order of a set's strings differs from process to process.
    """
    if any(each.unordered for each in value):
        state.out.by_hash = True


def contain(state: AbstractState, name: str, receiver: Value, arguments: list[Value]) -> None:
    """Apply a container method `name`, as in `xs.append(x)`: the receiver changes, and then holds the arguments."""
    change(state, receiver)
    for value in arguments:
        for each in receiver:
            each.hold(value | parts_of(value) if name in _SPREADING else value)


def change_root(state: AbstractState, name: str, path: tuple[str, ...]) -> None:
    """Mark the package that `name` refers to as changed at `path`, as in `decimal.getcontext().prec = 5`.

    If the interpreter knows no value of `name`, the name itself is marked.
    """
    packages = [each for each in state.globals.get(name, NOTHING) if each.package]
    for each in packages:
        change_package(state, each.package or "", (*filter(None, each.path.split(".")), *path))
    if not packages and not state.globals.get(name):
        state.out.changed.add(name)


def mark_unknown(state: AbstractState, nodes: Iterable[ast.expr]) -> None:
    """Mark the base names of these expressions as changed if the interpreter does not know their values.

    The base name of `a.b[0]` is `a`. Its value may be mutable, so it is marked to be safe.
    """
    for each in nodes:
        name, _ = root(each)
        if name is not None and state.owner(name) is None and not state.globals.get(name):
            state.out.changed.add(name)
