"""Hyperparameters of a space as columns of a table: a block's by a name of its own, `blocks[0].kind`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kernel_backend.model.record import Value
from kernel_backend.model.search.space import Parameter, Space


class Column(NamedTuple):
    """One of them, and what it may be."""

    name: str
    parameter: Parameter


def columns(space: Space) -> tuple[Column, ...]:
    """All that a trial may have, in written order: a block's parameters once for each place up to the most blocks."""
    outer = [Column(each.name, each) for each in space.of(None)]
    lists = dict.fromkeys(each.each for each in space.parameters if each.each is not None)
    inner = [
        Column(f"{name}[{place}].{each.name}", each)
        for name in lists
        for place in range(space.most(name))
        for each in space.of(name)
    ]
    return (*outer, *inner)


def flat(space: Space, params: Mapping[str, Value]) -> dict[str, Value]:
    """The hyperparameters that are searched; of a list of blocks their number, and each block's parameters.

    Where a space has none (a searcher of one's own needs none) they are all of `params`.
    """
    names = space.names or tuple(params)
    return dict(item for name in names if name in params for item in _items(name, params[name], space))


def _items(name: str, value: Value, space: Space) -> Iterator[tuple[str, Value]]:
    if not (isinstance(value, list) and space.of(name)):
        yield name, value
        return
    yield name, len(value)
    for place, block in enumerate(value):
        yield from ((f"{name}[{place}].{inner}", held) for inner, held in block.items())


def ordered(space: Space, names: Iterable[str]) -> tuple[str, ...]:
    """Columns of these names in written order; what is no column of the space comes last."""
    left = set(names)
    known = [each.name for each in columns(space) if each.name in left]
    return (*known, *sorted(left.difference(known)))
