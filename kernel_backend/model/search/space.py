"""Define a search space: hyperparameters with ranges or choices, conditions, and blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from kernel_backend.model.record import Record, Value
from kernel_backend.model.search.domains import Choices, Domain, Range
from kernel_backend.model.values import nearest, written

MOST_POINTS = 100_000  # in a grid
MOST_BLOCKS = 64  # in one list: each block has its own coordinates in the search space


class When(Record):
    """Condition of a parameter: it is active only if parameter `name` has one of these values."""

    name: str
    values: tuple[Value, ...] = Field(min_length=1)

    def __str__(self) -> str:
        """Format the condition as users write it: `opt=sgd,adam`."""
        return f"{self.name}={','.join(map(written, self.values))}"


class Parameter(Record):
    """One hyperparameter of a search space.

    With `each` it is a parameter of every block in a list of blocks, such as the layers of a model. The user's
    functions then receive the list, with a dictionary of parameters for each block, and `when` refers to a parameter of
    the same block.

    Parameters
    ----------
    name : str
        Name of the hyperparameter, such as ``lr``; within a block such as ``kind``.
    domain : Range or Choices
        Values that it can have.
    when : When, optional
        Condition under which the parameter is used at all: another parameter has one of certain values.
    each : str, optional
        Name of the list of blocks, such as ``blocks``. A parameter of this name, a range of integers, is the number of
        blocks.

    Examples
    --------
    >>> from daylight.search import Parameter, Range
    >>> str(Parameter(name="lr", domain=Range(low=1e-4, high=0.1, scale="log")))
    'lr=0.0001..0.1:log'
    """

    name: str  # such as `lr`; within a block `kind`
    domain: Annotated[Domain, Field(discriminator="type")]
    when: When | None = None
    each: str | None = None

    @property
    def label(self) -> str:
        """Return the parameter's name as written on the `%%dlsubmit` line: `lr`, `block.kind`."""
        return f"{self.each.removesuffix('s')}.{self.name}" if self.each else self.name

    def __str__(self) -> str:
        """Format the parameter as users write it: `block.kernel=3,5@each@kind=conv`."""
        each, when = "@each" if self.each else "", "" if self.when is None else f"@{self.when}"
        return f"{self.label}={self.domain}{each}{when}"


class Space(Record):
    """Search space: the searched hyperparameters in their written order.

    A parameter with a single choice has a given value. It is part of the space because other parameters depend on it.

    Parameters
    ----------
    parameters : tuple of Parameter
        Hyperparameters; names, conditions and blocks must agree.

    Examples
    --------
    >>> from daylight.search import Choices, Parameter, Range, Space
    >>> lr = Parameter(name="lr", domain=Range(low=1e-4, high=0.1, scale="log"))
    >>> width = Parameter(name="width", domain=Choices(values=(32, 64)))
    >>> Space(parameters=(lr, width)).names
    ('lr', 'width')
    """

    parameters: tuple[Parameter, ...] = ()

    @model_validator(mode="after")
    def _checked(self) -> Self:
        for problem in problems(self.parameters):
            raise ValueError(f"{problem.parameter}: {problem.text}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of hyperparameters that functions receive; those of blocks are passed within `blocks`."""
        return tuple(each.name for each in self.of(None))

    def of(self, blocks: str | None) -> tuple[Parameter, ...]:
        """Return the parameters of one list of blocks, or those outside of all blocks.

        Parameters
        ----------
        blocks : str or None
            Name of the list; None for parameters outside of blocks.

        Returns
        -------
        tuple of Parameter
            The parameters in their written order.
        """
        return tuple(parameter for parameter in self.parameters if parameter.each == blocks)

    def most(self, blocks: str) -> int:
        """Return the largest number of blocks in a list.

        Parameters
        ----------
        blocks : str
            Name of the list.

        Returns
        -------
        int
            Largest number of blocks.
        """
        (domain,) = (parameter.domain for parameter in self.of(None) if parameter.name == blocks)
        if isinstance(domain, Range):
            return int(domain.high)
        return max(each for each in domain.values if isinstance(each, int))

    def given(self, values: Mapping[str, Value]) -> Space:
        """Return the space that remains to be searched if some hyperparameters are given.

        A given parameter that others depend on remains, with a single choice. Parameters whose conditions can no
        longer hold are dropped, and so are the blocks of a list that is given as a whole.

        Parameters
        ----------
        values : mapping of str to Any
            Hyperparameters that are given, by name.

        Returns
        -------
        Space
            The rest of the space.
        """
        lists = {name for name, value in values.items() if isinstance(value, list) and self.of(name)}
        others = [each for each in self.parameters if not {each.name, each.each} & lists]
        left = _that_count([_told(each, values) for each in _needed(others, values)])
        return Space(parameters=tuple(_needed(left, values)))


def _needed(parameters: Sequence[Parameter], values: Mapping[str, Value]) -> list[Parameter]:
    """Return the parameters without those that have a value in `values`, unless another parameter depends on them.

    A parameter depends on another one by its condition, or on the one that is its number of blocks.
    """
    hung = {each.each or (each.when.name if each.when else None) for each in parameters}
    return [each for each in parameters if each.each is not None or each.name not in values or each.name in hung]


def _told(parameter: Parameter, values: Mapping[str, Value]) -> Parameter:
    """Return a parameter with its given value as its single choice and no condition; unchanged if no value is given."""
    if parameter.each is not None or parameter.name not in values:
        return parameter
    return parameter.model_copy(update={"domain": Choices(values=(values[parameter.name],)), "when": None})


def _that_count(parameters: list[Parameter]) -> list[Parameter]:
    """Return the parameters whose conditions can hold, without the values in a condition that cannot occur any more."""
    domains = {(each.each, each.name): each.domain for each in parameters}
    kept = [fitting for each in parameters if (fitting := _fitting(each, domains)) is not None]
    return kept if kept == parameters else _that_count(kept)


def _fitting(parameter: Parameter, domains: Mapping[tuple[str | None, str], Domain]) -> Parameter | None:
    if parameter.each is not None and (None, parameter.each) not in domains:
        return None
    if parameter.when is None:
        return parameter
    domain = domains.get((parameter.each, parameter.when.name))
    values = tuple(value for value in parameter.when.values if domain is not None and domain.holds(value))
    return parameter.model_copy(update={"when": When(name=parameter.when.name, values=values)}) if values else None


def in_order(parameters: Iterable[Parameter]) -> list[Parameter]:
    """Return the parameters in written order, but each after the parameter that its condition names."""
    named = {each.name: each for each in parameters}
    found: dict[str, Parameter] = {}
    for parameter in named.values():
        chain = [parameter]
        while (when := chain[-1].when) is not None:
            chain.append(named[when.name])
        found |= {each.name: each for each in reversed(chain)}
    return list(found.values())


class Problem(NamedTuple):
    """Reason why parameters do not form a valid space, with the invalid parameter."""

    parameter: Parameter
    text: str


def problems(parameters: tuple[Parameter, ...]) -> Iterator[Problem]:
    """Yield each reason why parameters form no valid space: duplicate names, invalid conditions, bad lists of blocks.

    A condition is invalid if it is circular, or names an unknown parameter or a value that this parameter never has.
    The number of blocks in a list must be a parameter.
    """
    yield from _twice(parameters)
    for parameter in parameters:
        own = {each.name: each for each in parameters if each.each == parameter.each and each != parameter}
        if parameter.when is not None:
            yield from _condition(parameter, parameter.when, own)
        if parameter.each is not None:
            yield from _number_of_blocks(parameter, [each for each in parameters if each.label == parameter.each])
    yield from _circles(parameters)


def _twice(parameters: tuple[Parameter, ...]) -> Iterator[Problem]:
    seen = set[str]()
    for parameter in parameters:
        if parameter.label in seen:
            yield Problem(parameter, f"{parameter.label} is given twice")
        seen.add(parameter.label)


def _condition(parameter: Parameter, when: When, others: Mapping[str, Parameter]) -> Iterator[Problem]:
    if when.name not in others:
        what = f"{when.name} of the same block" if parameter.each else when.name
        names = f"{nearest(when.name, others)}: there are {' '.join(others) or 'none'}"
        yield Problem(parameter, f"it hangs on {what}, which the line does not have{names}")
        return
    domain = others[when.name].domain
    if isinstance(domain, Range) and not domain.whole and domain.scale != "log2":
        why = f"a condition compares single values, and {when.name}={domain} is all fractions"
        yield Problem(parameter, f"{why}: write a list, such as {when.name}={domain.low:g},{domain.high:g}")
        return
    for value in when.values:
        if not domain.holds(value):
            near = nearest(value, domain.values) if isinstance(domain, Choices) else ""
            yield Problem(parameter, f"{when.name} is never {written(value)}{near}: it is {domain}")


def _number_of_blocks(parameter: Parameter, counts: list[Parameter]) -> Iterator[Problem]:
    blocks = parameter.each
    if not counts:
        yield Problem(parameter, f"nothing says how many there are of each: write {blocks}=1..6 too")
    for count in counts:
        domain = count.domain
        ends: list[Value] = [domain.low, domain.high] if isinstance(domain, Range) else list(domain.values)
        whole = domain.whole if isinstance(domain, Range) else all(type(value) is int for value in ends)
        if not whole or not all(isinstance(end, int | float) and 0 <= end <= MOST_BLOCKS for end in ends):
            enough = f"write a whole number, or a range of them up to {MOST_BLOCKS}, such as {blocks}=1..6"
            yield Problem(parameter, f"{count} does not say how many blocks there are: {enough}")


def _circles(parameters: tuple[Parameter, ...]) -> Iterator[Problem]:
    for blocks in {each.each for each in parameters}:
        own = {each.name: each for each in parameters if each.each == blocks}
        try:
            TopologicalSorter({each.name: [each.when.name] for each in own.values() if each.when}).prepare()
        except CycleError as error:
            circle = error.args[1]
            yield Problem(own[circle[0]], f"these conditions wait for each other: {' -> '.join(reversed(circle))}")


UNSEARCHED = Space()  # nothing is searched
