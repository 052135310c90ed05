"""Flatten hyperparameters to table columns; a parameter of a block is named `blocks[0].kind`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kernel_backend.model.record import Value
from kernel_backend.model.search.space import Parameter, Space


class Column(NamedTuple):
    """Column of a table: its name, and the parameter whose values it shows."""

    name: str
    parameter: Parameter


def columns(space: Space) -> tuple[Column, ...]:
    """Return all columns in the order in which the parameters are written.

    A block's parameters have columns for each index up to the maximum number of blocks.
    """
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
    """Return hyperparameters by column; a list of blocks gives its length and the parameters of each block.

    If the space has no parameters, as for a custom search class, all of `params` are returned.
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
    """Return column names sorted as their parameters are written; names that are no column of the space come last."""
    left = set(names)
    known = [each.name for each in columns(space) if each.name in left]
    return (*known, *sorted(left.difference(known)))
