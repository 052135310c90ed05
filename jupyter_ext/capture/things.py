"""Things: what names may stand for, one for each place in the code that makes something (Andersen's points-to sets)."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from jupyter_ext.capture.facts import FunctionNode

Value = frozenset["Thing"]  # what an expression may be; empty: numbers, texts and other things that nobody can change
NOTHING: Value = frozenset()
ELEMENTS = ""  # the field of what lies in a container, or under an attribute that the text does not name


@dataclass(eq=False, slots=True)
class Thing:
    """Something that can be changed, or holds what can be.

    `opaque` ones come from code that is not seen: their parts may be themselves. `stateful` ones, such as iterators
    and generators of random numbers, are changed by being used.
    """

    fields: dict[str, set[Thing]] = field(default_factory=dict)
    holders: set[Thing] = field(default_factory=set)  # a change of this one is a change of those
    names: set[str] = field(default_factory=set)  # of the notebook
    opaque: bool = False
    stateful: bool = False
    grows: bool = False  # by being looked at, as a defaultdict does
    function: Function | None = None
    classes: list[Thing] = field(default_factory=list)  # of an instance; of a class its bases
    is_class: bool = False
    package: str | None = None
    path: str = ""  # within the package
    bound: Value = NOTHING  # to what a method belongs
    call: tuple[Thing, list[Value], dict[str, Value]] | None = None  # of a generator: what runs when it is iterated

    def hold(self, value: Iterable[Thing], under: str = ELEMENTS) -> None:
        """Whatever `value` may be is a part of this from now on."""
        for each in value:
            self.fields.setdefault(under, set()).add(each)
            each.holders.add(self)

    def parts(self) -> set[Thing]:
        """All that it holds itself."""
        return set().union(*self.fields.values())

    def names_field(self, name: str) -> bool:
        """Whether the text says what the attribute is."""
        return name in self.fields or any(each.names_field(name) for each in self.classes)

    def find(self, name: str) -> set[Thing]:
        """What the attribute may be, by the instance and then by its classes; empty where the text does not say."""
        own = self.fields.get(name, set()) | self.fields.get(ELEMENTS, set())
        if self.fields.get(name):
            return own
        for each in self.classes:
            if found := each.find(name):
                return own | found
        return own


@dataclass(eq=False, slots=True)
class Frame:
    """The local names of a function or class body that is being run."""

    local: set[str]
    outer: Frame | None
    is_class: bool = False
    values: dict[str, Value] = field(default_factory=dict)
    results: set[Thing] = field(default_factory=set)
    box: Thing = field(default_factory=Thing)  # holds what the names do: closures are changed with it


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """A function whose text is known, and where its free names are looked up."""

    node: FunctionNode | ast.Lambda
    frame: Frame | None
    local: set[str]
    is_generator: bool
    decorators: frozenset[str]


def reach(value: Iterable[Thing]) -> set[Thing]:
    """The things and all that they hold, at any depth."""
    found: set[Thing] = set()
    queue = list(value)
    while queue:
        thing = queue.pop()
        if thing not in found and thing.package is None:
            found.add(thing)
            for each in thing.fields.values():
                queue.extend(each)
            queue.extend(thing.bound)
    return found


def names_of(changed: Iterable[Thing]) -> set[str]:
    """The notebook's names whose values change with these."""
    seen: set[Thing] = set()
    names: set[str] = set()
    queue = list(changed)
    while queue:
        thing = queue.pop()
        if thing not in seen:
            seen.add(thing)
            names |= thing.names
            queue.extend(thing.holders)
    return names
