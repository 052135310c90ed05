"""All combinations of a space's values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.model.search_rules import uncounted
from kernel_backend.model.space import Choices, Domain, Parameter, Space, in_order

T = TypeVar("T")

MOST = 100_000


def points(space: Space) -> list[dict[str, Value]]:
    """The hyperparameters of each combination, each once; what is written last changes fastest.

    Where a parameter's condition does not hold it is left out, and its values make no combinations of their own.
    Raises InvalidRequest for a range of fractions without a count, and for more than MOST combinations.
    """
    if wrong := list(uncounted(space)):
        raise InvalidRequest("\n".join(wrong))
    found = list(islice(_points(space), MOST + 1)) if _at_least(space) <= MOST else None
    if found is None or len(found) > MOST:
        fewer = "give ranges a smaller count, as in 1..100:5, or take some of them with --search random"
        raise InvalidRequest(f"this grid has more than {MOST:,} points: {fewer}")
    return found


def values(domain: Domain) -> Sequence[Value]:
    """What a grid has of a domain: all of it, or as many values as it counts, evenly from end to end."""
    if isinstance(domain, Choices):
        return domain.values
    if domain.scale == "log2":
        lowest, highest = domain.exponents
        count = domain.count or highest - lowest + 1
        return [2**power if domain.whole else 2.0**power for power in _wholes(_steps(lowest, highest, count))]
    if domain.count is None:
        return range(int(domain.low), int(domain.high) + 1)
    steps = _steps(domain.low, domain.high, domain.count)
    if domain.scale == "log":
        between = _steps(math.log(domain.low), math.log(domain.high), domain.count)[1:-1]
        steps = [domain.low, *map(math.exp, between), domain.high]
    return _wholes(steps) if domain.whole else steps


def _steps(low: float, high: float, count: int) -> list[float]:
    shares = (step / (count - 1) for step in range(count))
    return [low * (1 - share) + high * share for share in shares]


def _wholes(steps: Sequence[float]) -> list[int]:
    return list(dict.fromkeys(map(round, steps)))


def _at_least(space: Space) -> int:
    """A bound from below, by what always counts: not to begin with what will never end."""
    lists = {each.each for each in space.parameters if each.each is not None}
    blocks = [int(_always(space.of(name)) ** space.most(name)) for name in lists]
    return max([_always(space.of(None)), *blocks])


def _always(parameters: Sequence[Parameter]) -> int:
    return int(math.prod(len(values(each.domain)) for each in parameters if each.when is None))


def _points(space: Space) -> Iterator[dict[str, Value]]:
    own = {each.each: in_order(space.of(each.each)) for each in space.parameters if each.each is not None}
    for outer in _combinations(in_order(space.of(None))):
        counts = {name: count for name in own if isinstance(count := outer.get(name), int)}
        lists = {name: [partial(_combinations, own[name])] * count for name, count in counts.items()}
        makers = [partial(_each, blocks) for blocks in lists.values()]
        for chosen in _each(makers):
            params = outer | {name: list(map(dict, blocks)) for name, blocks in zip(lists, chosen, strict=True)}
            yield {name: params[name] for name in space.names if name in params}


def _combinations(parameters: Sequence[Parameter]) -> Iterator[dict[str, Value]]:
    """Values of these parameters, which are given with conditions before what hangs on them."""
    if not parameters:
        yield {}
        return
    *before, last = parameters
    for found in _combinations(before):
        when = last.when
        if when is None or (when.name in found and found[when.name] in when.values):
            yield from ({**found, last.name: value} for value in values(last.domain))
        else:
            yield found


def _each(makers: Sequence[Callable[[], Iterator[T]]]) -> Iterator[tuple[T, ...]]:
    """As `itertools.product`, which would make all of what it is given first."""
    if not makers:
        yield ()
        return
    for first in makers[0]():
        for others in _each(makers[1:]):
            yield (first, *others)
