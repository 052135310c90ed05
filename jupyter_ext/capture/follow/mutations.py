"""What changes: things, packages, the states that random numbers are drawn from, and names of nobody knows what."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from jupyter_ext.capture.follow import libraries
from jupyter_ext.capture.follow.abstract_objects import NOTHING, AbstractObject, Value, parts_of, reach
from jupyter_ext.capture.follow.abstract_state import AbstractState
from jupyter_ext.capture.follow.sources import RandomUse
from jupyter_ext.capture.names import root

_SPREADING = {"extend", "extendleft", "update", "__iadd__"}


def change(world: AbstractState, value: Iterable[AbstractObject], *, deep: bool = False) -> None:
    """These change; `deep`: with all that they hold, by code that is not seen."""
    found = reach(value) if deep else value
    for each in found:
        if each.package is None:
            world.changed.add(each)
            if deep:
                each.opaque = True


def use(world: AbstractState, value: Iterable[AbstractObject]) -> None:
    """Iterators move on, generators draw."""
    for each in value:
        if each.stateful:
            world.changed.add(each)


def change_package(world: AbstractState, package: str, path: tuple[str, ...]) -> None:
    """Something at `path` in a package is set; not what a secret is set in, which stays out of snapshots."""
    if world.sets_secret:
        return
    if path and ((package, path[0]) in libraries.AMBIENT or package == "builtins"):
        world.out.ambient = True
    if path and package == "builtins":
        world.out.bound.add(path[0])
    world.changed |= world.package(package)


def draw(world: AbstractState, package: str, path: tuple[str, ...], *, surely: bool = False) -> None:
    """A call in a package that may draw random numbers, or seed where they come from."""
    seeded, drawn = libraries.random_effect(package, path)
    world.out.seeded |= seeded
    world.out.drawn |= drawn
    world.out.surely_drawn |= drawn if surely else set()


def use_random(world: AbstractState, use: RandomUse) -> None:
    """A call of the project's own code that seeds or draws."""
    world.out.seeded |= use.seeded
    world.out.perhaps_seeded |= use.perhaps
    world.out.drawn |= use.drawn
    world.out.surely_drawn |= use.drawn - use.seeded - use.perhaps


def in_order(world: AbstractState, value: Iterable[AbstractObject]) -> None:
    """Something depends on the order of these."""
    if any(each.unordered for each in value):
        world.out.by_hash = True


def contain(world: AbstractState, name: str, receiver: Value, arguments: list[Value]) -> None:
    """A method of containers: `xs.append(x)`."""
    change(world, receiver)
    for value in arguments:
        for each in receiver:
            each.hold(value | parts_of(value) if name in _SPREADING else value)


def change_root(world: AbstractState, name: str, path: tuple[str, ...]) -> None:
    """`decimal.getcontext().prec = 5`, and names whose value is known to nobody."""
    packages = [each for each in world.globals.get(name, NOTHING) if each.package]
    for each in packages:
        change_package(world, each.package or "", (*filter(None, each.path.split(".")), *path))
    if not packages and not world.globals.get(name):
        world.out.changed.add(name)


def mark_unknown(world: AbstractState, nodes: Iterable[ast.expr]) -> None:
    """Names that stand for nothing known may still be changed."""
    for each in nodes:
        name, _ = root(each)
        if name is not None and world.owner(name) is None and not world.globals.get(name):
            world.out.changed.add(name)
