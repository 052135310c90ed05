"""Represent values as abstract objects, one for each allocation site in the code (Andersen's points-to sets)."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from jupyter_ext.capture.facts import FunctionNode

Value = frozenset[
    "AbstractObject"
]  # the possible values of an expression; empty: numbers, strings and other immutable values
NOTHING: Value = frozenset()
ELEMENTS = ""  # the field of a container's elements, or of an attribute that the source does not name


@dataclass(eq=False, slots=True)
class AbstractObject:
    """Abstract object, which stands for all mutable values, or values with mutable parts, from one place in the code.

    `opaque` objects come from code that is not analysed. As it is unknown what they hold, any of their elements and
    attributes may be the object itself. `stateful` objects, such as iterators and random generators, change when they
    are used.
    """

    fields: dict[str, set[AbstractObject]] = field(default_factory=dict)
    holders: set[AbstractObject] = field(default_factory=set)  # a change of this object also changes these
    names: set[str] = field(default_factory=set)  # notebook names
    opaque: bool = False
    stateful: bool = False
    unordered: bool = False  # a set
    grows: bool = False  # reading it may add an element, as with a defaultdict
    function: AbstractFunction | None = None
    classes: list[AbstractObject] = field(default_factory=list)  # of an instance; for a class, its bases
    is_class: bool = False
    package: str | None = None
    path: str = ""  # within the package
    learns: bool = False  # calling it changes it, as a BatchNorm
    data: bool = False  # no training changes it: it has neither gradients nor weights, except in what it holds
    draws: bool = False  # iterating over it draws random numbers, as a DataLoader
    origin: str | None = None  # the package that created it; of a class, the one of its bases
    assumed: bool = False  # stands for all results of code that was not interpreted: it may have all properties
    bound: Value = NOTHING  # the object to which a method is bound
    call: tuple[AbstractObject, list[Value], dict[str, Value]] | None = (
        None  # of a generator: what runs when it is iterated
    )

    def hold(self, value: Iterable[AbstractObject], under: str = ELEMENTS) -> None:
        """Add the objects in `value` to the possible values of the attribute `under`; by default, of the elements."""
        new = frozenset(value).difference(self.fields.get(under, ()))
        if new:
            self.fields.setdefault(under, set()).update(new)
            for each in new:
                each.holders.add(self)

    def parts(self) -> set[AbstractObject]:
        """Return the possible values of all attributes and elements of this object."""
        return set().union(*self.fields.values())

    def linked(self) -> set[AbstractObject]:
        """Return the objects to which this one refers directly: parts, classes and the object that it is bound to."""
        return {*self.parts(), *self.classes, *self.bound}

    def names_field(self, name: str) -> bool:
        """Return True if this object, or one of its classes, is known to have the attribute `name`."""
        return name in self.fields or any(each.names_field(name) for each in self.classes)

    def find(self, name: str) -> set[AbstractObject]:
        """Return an attribute's possible values, from the instance, else from its classes; an empty set if unknown."""
        own = self.fields.get(name, set()) | self.fields.get(ELEMENTS, set())
        if self.fields.get(name):
            return own
        for each in self.classes:
            if found := each.find(name):
                return own | found
        return own

    def all_fields(self) -> set[str]:
        """Return the attribute names of this object and of all its classes and bases."""
        return set(self.fields).union(*[each.all_fields() for each in self.classes])

    def own_methods(self, name: str) -> list[AbstractObject]:
        """Return the methods called `name` whose source is in the notebook, from this class, else from its bases.

        If several bases have such methods, the first base decides.
        """
        if name in self.fields:
            return [each for each in self.fields[name] if each.function is not None]
        for each in self.classes:
            if found := each.own_methods(name):
                return found
        return []

    def is_unseen(self) -> bool:
        """Return True if this class, or one of its bases, is defined in code that is not analysed."""
        return self.opaque or any(each.is_unseen() for each in self.classes)

    def is_callable(self) -> bool:
        """Return True if the object's classes define `__call__`."""
        return any("__call__" in each.all_fields() for each in self.classes)


@dataclass(eq=False, slots=True)
class LocalScope:
    """Local names of a function or class body that is being interpreted."""

    local: frozenset[str]
    outer: LocalScope | None
    is_class: bool = False
    values: dict[str, Value] = field(default_factory=dict)
    results: set[AbstractObject] = field(default_factory=set)
    box: AbstractObject = field(default_factory=AbstractObject)  # holds the values of names: closures change with it
    reentered: bool = False  # the function was called again while its body was interpreted

    def size(self) -> int:
        """Return the total number of possible values of all names and of the result.

        Values are only added, so an unchanged size means that interpreting the body again has found nothing new.
        """
        return len(self.results) + sum(len(each) for each in self.values.values())


@dataclass(frozen=True, eq=False, slots=True)
class AbstractFunction:
    """Function whose source is available, and the scope in which its free variables are looked up."""

    node: FunctionNode | ast.Lambda
    frame: LocalScope | None
    decorators: frozenset[str]


def reach(value: Iterable[AbstractObject]) -> set[AbstractObject]:
    """Return these objects and all that can be reached from them through attributes and elements, except packages."""
    found = {each for each in value if each.package is None}
    queue = list(found)
    while queue:
        obj = queue.pop()
        for part in [*obj.fields.values(), obj.bound]:
            new = [each for each in part - found if each.package is None]
            found.update(new)
            queue += new
    return found


def holders_of(changed: Iterable[AbstractObject]) -> set[AbstractObject]:
    """Return the changed objects and all objects that refer to them, directly or not, as these count as changed."""
    found = set(changed)
    queue = list(found)
    while queue:
        new = queue.pop().holders - found
        found |= new
        queue += new
    return found


def names_of(objects: Iterable[AbstractObject]) -> set[str]:
    """Return the notebook names that may refer to any of these objects."""
    return set[str]().union(*(each.names for each in objects))


def parts_of(value: Iterable[AbstractObject]) -> Value:
    """Return the possible values of an element or attribute of these objects."""
    found: set[AbstractObject] = set()
    for each in value:
        found |= each.parts()
        if each.opaque or each.package:
            found.add(each)
    return frozenset(found)
