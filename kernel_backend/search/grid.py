"""Enumerate all combinations of the values in a search space (grid search)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.record import Value
from kernel_backend.model.search.domains import Choices, Domain, Range
from kernel_backend.model.search.records import Settings
from kernel_backend.model.search.space import MOST_POINTS, Parameter, Space, in_order
from kernel_backend.search.asha import Asha
from kernel_backend.search.base import Plan
from kernel_backend.search.brackets import Bracket
from kernel_backend.search.encoding import Encoder
from kernel_backend.search.observations import Observations
from kernel_backend.search.samplers.base import ListSampler
from kernel_backend.spec.search_rules import uncounted

T = TypeVar("T")

MOST = MOST_POINTS


def grid_searcher(settings: Settings, space: Space) -> Asha:
    """Return a searcher that trains each combination once, to its end; raises the errors of `points`."""
    found = points(space)
    seen = Observations(Encoder(space), settings.mode, [settings.units])
    brackets = [Bracket([settings.units], 1.0)]
    return Asha(settings, brackets, ListSampler(found), seen, settings.limit, asks=len(found))


def grid_plan(settings: Settings, space: Space) -> Plan:
    """Return an upper bound of the training in a grid search, for a dry run; raises the errors of `points`."""
    trials = min(count(space), settings.trials or MOST)
    return Plan(trials, settings.units, trials)


def points(space: Space) -> list[dict[str, Value]]:
    """Return the hyperparameters of each combination; the last parameter changes fastest.

    A parameter whose condition does not hold is left out of a combination. Raises InvalidRequest for a range of real
    numbers without a count, and for more than MOST combinations.
    """
    count(space)
    return list(_points(space))


def count(space: Space) -> int:
    """Return the number of combinations without creating them; raises the errors of `points`."""
    if wrong := list(uncounted(space)):
        raise InvalidRequest("\n".join(wrong))
    if not any((each.domain.count or 0) > MOST for each in space.parameters if isinstance(each.domain, Range)):
        found = _Counter(space).combinations(None)
        if found <= MOST:
            return found
    fewer = "give ranges a smaller count, as in 1..100:5, or take some of them with --search random"
    raise InvalidRequest(f"this grid has more than {MOST:,} points: {fewer}")


class _Counter:
    """Counter of a grid's combinations; a conditional parameter multiplies only those where its condition holds."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._known: dict[str, int] = {}
        self._hanging: dict[tuple[str | None, str], list[Parameter]] = {}
        for parameter in space.parameters:
            if parameter.when is not None:
                self._hanging.setdefault((parameter.each, parameter.when.name), []).append(parameter)

    def combinations(self, blocks: str | None) -> int:
        """Return the number of combinations within one block of list `blocks`; None: outside of all blocks."""
        return math.prod(self._of(each) for each in self._space.of(blocks) if each.when is None)

    def _of(self, parameter: Parameter) -> int:
        """Return the number of combinations of a parameter together with all that depend on it by conditions."""
        if parameter.label not in self._known:
            self._known[parameter.label] = self._counted(parameter)
        return self._known[parameter.label]

    def _counted(self, parameter: Parameter) -> int:
        own = values(parameter.domain)
        if len(own) > MOST:
            return len(own)
        hanging = self._hanging.get((parameter.each, parameter.name), [])
        counts_blocks = parameter.each is None and bool(self._space.of(parameter.name))
        each_block = self.combinations(parameter.name) if counts_blocks else 1
        if not hanging and not counts_blocks:
            return len(own)
        lists = (each_block**value if isinstance(value, int) else 1 for value in own)
        return sum(count * self._with(value, hanging) for count, value in zip(lists, own, strict=True))

    def _with(self, value: Value, hanging: Sequence[Parameter]) -> int:
        return math.prod(self._of(each) for each in hanging if each.when is not None and value in each.when.values)


def values(domain: Domain) -> Sequence[Value]:
    """Return the values of a domain that a grid search tries.

    These are all choices, or for a range `domain.count` values, evenly spaced on its scale. Without a count they are
    all integers (on the scale `log2` all powers of two) in the range.
    """
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
    """Yield the combinations of these parameters' values.

    Each parameter must come after the one that its condition names.
    """
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
    """Yield the product of iterators, as `itertools.product` does, but without storing their items.

    Each of `makers` is called for a new iterator over the same items whenever they are needed again.
    """
    if not makers:
        yield ()
        return
    for first in makers[0]():
        for others in _each(makers[1:]):
            yield (first, *others)
