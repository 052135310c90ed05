"""Things: what names may stand for, one for each place in the code that makes something (Andersen's points-to sets)."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from jupyter_ext.capture.facts import FunctionNode

Value = frozenset[
    "AbstractObject"
]  # what an expression may be; empty: numbers, texts and other things that nobody can change
NOTHING: Value = frozenset()
ELEMENTS = ""  # the field of what lies in a container, or under an attribute that the text does not name


@dataclass(eq=False, slots=True)
class AbstractObject:
    """Something that can be changed, or holds what can be.

    `opaque` ones come from code that is not seen: their parts may be themselves. `stateful` ones, such as iterators
    and generators of random numbers, are changed by being used.
    """

    fields: dict[str, set[AbstractObject]] = field(default_factory=dict)
    holders: set[AbstractObject] = field(default_factory=set)  # a change of this one is a change of those
    names: set[str] = field(default_factory=set)  # of the notebook
    opaque: bool = False
    stateful: bool = False
    unordered: bool = False  # a set
    grows: bool = False  # by being looked at, as a defaultdict does
    function: AbstractFunction | None = None
    classes: list[AbstractObject] = field(default_factory=list)  # of an instance; of a class its bases
    is_class: bool = False
    package: str | None = None
    path: str = ""  # within the package
    learns: bool = False  # by being called, as a BatchNorm does
    draws: bool = False  # by being iterated, as a DataLoader does
    origin: str | None = None  # the package that made it
    bound: Value = NOTHING  # to what a method belongs
    call: tuple[AbstractObject, list[Value], dict[str, Value]] | None = (
        None  # of a generator: what runs when it is iterated
    )

    def hold(self, value: Iterable[AbstractObject], under: str = ELEMENTS) -> None:
        """Whatever `value` may be is a part of this from now on."""
        new = frozenset(value).difference(self.fields.get(under, ()))
        if new:
            self.fields.setdefault(under, set()).update(new)
            for each in new:
                each.holders.add(self)

    def parts(self) -> set[AbstractObject]:
        """All that it holds itself."""
        return set().union(*self.fields.values())

    def linked(self) -> set[AbstractObject]:
        """What it leads to: its parts, its classes, and what it belongs to."""
        return {*self.parts(), *self.classes, *self.bound}

    def names_field(self, name: str) -> bool:
        """Whether the text says what the attribute is."""
        return name in self.fields or any(each.names_field(name) for each in self.classes)

    def find(self, name: str) -> set[AbstractObject]:
        """What the attribute may be, by the instance and then by its classes; empty where the text does not say."""
        own = self.fields.get(name, set()) | self.fields.get(ELEMENTS, set())
        if self.fields.get(name):
            return own
        for each in self.classes:
            if found := each.find(name):
                return own | found
        return own

    def all_fields(self) -> set[str]:
        """The names of its fields and its bases'."""
        return set(self.fields).union(*[each.all_fields() for each in self.classes])

    def own_methods(self, name: str) -> list[AbstractObject]:
        """A class's methods of that name, its own or those of the first base that has the name."""
        if name in self.fields:
            return [each for each in self.fields[name] if each.function is not None]
        for each in self.classes:
            if found := each.own_methods(name):
                return found
        return []

    def is_unseen(self) -> bool:
        """Whether a class or one of its bases comes from code that is not seen."""
        return self.opaque or any(each.is_unseen() for each in self.classes)

    def is_callable(self) -> bool:
        """Whether its classes have `__call__`."""
        return any("__call__" in each.all_fields() for each in self.classes)


@dataclass(eq=False, slots=True)
class LocalScope:
    """The local names of a function or class body that is being run."""

    local: frozenset[str]
    outer: LocalScope | None
    is_class: bool = False
    values: dict[str, Value] = field(default_factory=dict)
    results: set[AbstractObject] = field(default_factory=set)
    box: AbstractObject = field(default_factory=AbstractObject)  # holds what the names do: closures are changed with it


@dataclass(frozen=True, eq=False, slots=True)
class AbstractFunction:
    """A function whose text is known, and where its free names are looked up."""

    node: FunctionNode | ast.Lambda
    frame: LocalScope | None
    decorators: frozenset[str]


def reach(value: Iterable[AbstractObject]) -> set[AbstractObject]:
    """The things and all that they hold, at any depth."""
    found = {each for each in value if each.package is None}
    queue = list(found)
    while queue:
        thing = queue.pop()
        for part in [*thing.fields.values(), thing.bound]:
            new = [each for each in part - found if each.package is None]
            found.update(new)
            queue += new
    return found


def holders_of(changed: Iterable[AbstractObject]) -> set[AbstractObject]:
    """The things, and all that changes with them because it holds them."""
    found = set(changed)
    queue = list(found)
    while queue:
        new = queue.pop().holders - found
        found |= new
        queue += new
    return found


def names_of(things: Iterable[AbstractObject]) -> set[str]:
    """The notebook's names for these."""
    return set[str]().union(*(each.names for each in things))


def parts_of(value: Iterable[AbstractObject]) -> Value:
    """What an element or an attribute of it may be."""
    found: set[AbstractObject] = set()
    for each in value:
        found |= each.parts()
        if each.opaque or each.package:
            found.add(each)
    return frozenset(found)
