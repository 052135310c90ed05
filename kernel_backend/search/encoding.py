"""Encode hyperparameters as points of the unit cube, in which samplers work.

A coordinate that is uniform in [0, 1] gives a value that is uniform on its scale: choices and integers have equal
shares of the interval, and both ends of a range are reached. On a log scale, the share of an integer n is that of the
interval from n - 1/2 to n + 1/2, as in ConfigSpace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices, Range
from kernel_backend.model.search.space import Parameter, Space, in_order


class Dimension(NamedTuple):
    """Coordinate of the unit cube, named after its hyperparameter: `lr`, or `blocks[2].kind` for one of a block."""

    name: str
    choices: int  # number of choices; 0: numeric


class Codec(NamedTuple):
    """Functions between a coordinate in [0, 1] and a hyperparameter's value.

    `value` maps a coordinate to a value, and `unit` a value to its coordinate. `unit` raises TypeError or ValueError
    for an invalid value.
    """

    value: Callable[[float], Value]
    unit: Callable[[Any], float]


class _Place(NamedTuple):
    """Parameter with the index of its coordinate, the mapping between [0, 1] and values, and its condition."""

    parameter: str
    at: int | None  # index of its coordinate; None: it has a single value
    value: Callable[[float], Value]
    unit: Callable[[Any], float]
    domain: Range | Choices
    when: str | None
    values: tuple[Value, ...]


class Encoder:
    """Converter between hyperparameters of a space and points of the unit cube.

    A point that is uniform in the cube makes values that are uniform on their scales.

    Parameters
    ----------
    space : Space
        Search space. It determines the attribute `dimensions`: name and number of choices of each coordinate.

    Examples
    --------
    >>> from daylight.search import Encoder, Parameter, Range, Space
    >>> lr = Parameter(name="lr", domain=Range(low=1e-4, high=1e-2, scale="log"))
    >>> encoder = Encoder(Space(parameters=(lr,)))
    >>> [round(at, 6) for at in encoder.encode({"lr": 1e-3})]
    [0.5]
    >>> sorted(encoder.decode([1.0]))
    ['lr']
    """

    def __init__(self, space: Space) -> None:
        dimensions: list[Dimension] = []
        self._names = space.names
        self._outer = _places(space.of(None), "", dimensions)
        lists = dict.fromkeys(each.each for each in space.parameters if each.each is not None)
        self._lists = {
            name: [_places(space.of(name), f"{name}[{index}].", dimensions) for index in range(space.most(name))]
            for name in lists
        }
        self.dimensions: tuple[Dimension, ...] = tuple(dimensions)

    def decode(self, point: Sequence[float]) -> dict[str, Value]:
        """Return the hyperparameters at a point.

        A parameter whose condition does not hold is left out; blocks are a list of dictionaries.

        Parameters
        ----------
        point : sequence of float
            Coordinates from 0 to 1; those of inactive parameters are ignored.

        Returns
        -------
        dict of str to Any
            Hyperparameters by name.
        """
        found = _decoded(self._outer, point)
        for name, blocks in self._lists.items():
            if isinstance(count := found.get(name), int):
                found[name] = [_decoded(block, point) for block in blocks[:count]]
        return {name: found[name] for name in self._names if name in found}

    def encode(self, params: Mapping[str, Value]) -> list[float]:
        """Return the point of these hyperparameters.

        A choice becomes the middle of its share, (k + 0.5) / n.

        Parameters
        ----------
        params : mapping of str to Any
            Hyperparameters by name; other names are ignored.

        Returns
        -------
        list of float
            Coordinates from 0 to 1; NaN for inactive parameters.

        Raises
        ------
        ValueError
            A value is missing, or outside of its domain.
        """
        point = [math.nan] * len(self.dimensions)
        counts = {name: len(blocks) for name in self._lists if isinstance(blocks := params.get(name), list)}
        counted = _encode(self._outer, {**params, **counts} if counts else params, point, "")
        for name in self._lists.keys() & counted:
            blocks = params[name]
            if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
                raise ValueError(f"{name}={blocks!r} is no list of dictionaries")
            for index, (places, block) in enumerate(zip(self._lists[name], blocks, strict=False)):
                _encode(places, block, point, f"{name}[{index}].")
        return point


def _places(parameters: Sequence[Parameter], prefix: str, dimensions: list[Dimension]) -> list[_Place]:
    """Append a coordinate to `dimensions` for each parameter, and return the parameters with their coordinates.

    A parameter with a single value gets none. `prefix` precedes the names, such as `blocks[2].` for those of a block.
    Each parameter comes after the one on which it depends.
    """
    found = {}
    for each in parameters:
        choices = len(each.domain.values) if isinstance(each.domain, Choices) else 0
        when, values = (each.when.name, each.when.values) if each.when else (None, ())
        at = None if choices == 1 else len(dimensions)
        found[each.name] = _Place(each.name, at, *codec(each.domain), each.domain, when, values)
        if at is not None:
            dimensions.append(Dimension(prefix + each.name, choices))
    return [found[each.name] for each in in_order(parameters)]


def _decoded(places: list[_Place], point: Sequence[float]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, at, value, _, _, when, values in places:
        if when is None or (when in found and found[when] in values):
            found[name] = value(0.0 if at is None else point[at])
    return found


def _encode(places: list[_Place], params: Mapping[str, Value], point: list[float], prefix: str) -> set[str]:
    """Write the coordinates of hyperparameters into `point`; return the names of the active ones.

    Raises ValueError if an active one is missing or invalid; `prefix` precedes its name in the message.
    """
    counted = set[str]()
    for name, at, _, unit, domain, when, values in places:
        if when is not None and not (when in counted and params[when] in values):
            continue
        if name not in params:
            raise ValueError(f"{prefix}{name} is missing; it is one of {domain}")
        counted.add(name)
        try:
            coordinate = unit(params[name])
        except (TypeError, ValueError):
            raise ValueError(f"{prefix}{name}={params[name]!r} lies outside of {domain}") from None
        if at is not None:
            point[at] = coordinate
    return counted


def codec(domain: Range | Choices) -> Codec:
    """Return the functions that map [0, 1] to the values of a domain, and back."""
    if isinstance(domain, Choices):
        return _steps(len(domain.values), domain.values.__getitem__, domain.values.index)
    if domain.scale == "log2":
        return _powers(domain)
    if domain.whole:
        return _whole_log(domain) if domain.scale == "log" else _whole(domain)
    return _log(domain) if domain.scale == "log" else _linear(domain)


def _steps(count: int, value: Callable[[int], Value], step: Callable[[Any], int]) -> Codec:
    """Return the codec of `count` values that have equal shares of [0, 1].

    `value` returns the value of a share, counted from 0, and `step` the share of a value.
    """

    def unit(chosen: Any) -> float:
        return (step(chosen) + 0.5) / count

    return Codec(lambda unit: value(min(int(unit * count), count - 1)), unit)


def _powers(domain: Range) -> Codec:
    lowest, highest = domain.exponents
    powers: list[Value] = [2**exponent if domain.whole else 2.0**exponent for exponent in range(lowest, highest + 1)]
    return _steps(len(powers), powers.__getitem__, powers.index)


def _whole(domain: Range) -> Codec:
    numbers = range(int(domain.low), int(domain.high) + 1)
    return _steps(len(numbers), numbers.__getitem__, numbers.index)


def _whole_log(domain: Range) -> Codec:
    first, last = int(domain.low), int(domain.high)
    low, width = math.log(first - 0.5), math.log(last + 0.5) - math.log(first - 0.5)

    def unit(value: Any) -> float:
        if value not in range(first, last + 1):
            raise ValueError(value)
        return (math.log(value) - low) / width

    return Codec(lambda unit: max(first, min(last, round(math.exp(low + unit * width)))), unit)


def _log(domain: Range) -> Codec:
    low, high = domain.low, domain.high
    start, width = math.log(low), math.log(high) - math.log(low)

    def value(unit: float) -> float:
        # Return the ends exactly: exp(log(x)) need not equal x.
        return min(max(math.exp(start + unit * width), low), high) if 0 < unit < 1 else (low if unit <= 0 else high)

    def unit(value: Any) -> float:
        if not low <= value <= high:
            raise ValueError(value)
        return (math.log(value) - start) / width

    return Codec(value, unit)


def _linear(domain: Range) -> Codec:
    low, high, width = domain.low, domain.high, domain.high - domain.low

    def unit(value: Any) -> float:
        if not low <= value <= high:
            raise ValueError(value)
        return float((value - low) / width)

    return Codec(lambda unit: min(low + unit * width, high) if unit < 1 else high, unit)
