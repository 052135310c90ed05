"""Hold the abstract state: the objects to which each notebook name may refer at the current statement.

The interpretation takes all branches, and runs loops twice. A plain assignment replaces the possible values of a name;
within a branch it adds to them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from jupyter_ext.capture.facts import Statement
from jupyter_ext.capture.follow.abstract_objects import (
    NOTHING,
    AbstractFunction,
    AbstractObject,
    LocalScope,
    Value,
    reach,
)
from jupyter_ext.capture.follow.members import extended, lacks
from jupyter_ext.capture.follow.syntax import Code
from jupyter_ext.capture.names import parts

_STEPS = 20_000  # limit of interpreted nodes within functions; beyond it, functions are summarised
_WORK = 1_000_000  # limit of objects looked at; beyond it, statements are summarised
_WORK_OF_ONE = 200_000  # limit for one statement
_LEAST_WORK = 2_000  # what each statement may use, also where the others have used up all


@dataclass
class StatementEffect:
    """Possible effects of one statement on the notebook's names."""

    changed: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)  # by functions that the statement called
    bound: set[str] = field(default_factory=set)  # declared `global` in these functions, or bound through `globals()`
    seeded: set[str] = field(default_factory=set)
    perhaps_seeded: set[str] = field(default_factory=set)
    drawn: set[str] = field(default_factory=set)
    surely_drawn: set[str] = field(default_factory=set)  # by a call that always draws
    by_chance: bool = False  # reads a value that differs in each process, such as the clock or an unseeded generator
    by_hash: bool = False  # iterates over a set, whose order differs in each process if it contains strings
    prompts: bool = False  # prompts the user: `input()`
    unseen: bool = False  # runs code that is generated at run time
    too_intricate: bool = False  # its effects were assumed, not interpreted
    packages: set[str] = field(default_factory=set)  # whose settings it changes
    ambient: bool = False  # changes something that any statement may depend on, such as sys.path


class Spent(Exception):
    """Raised if interpreting a statement exceeds the limit of work; the statement's effects are then assumed."""


class AbstractState:
    """State of the abstract interpreter: objects, possible values of names, and the current statement's effects."""

    def __init__(self, visits: Visits, *, counts_subclasses: bool) -> None:
        self.globals: dict[str, Value] = {}
        self._packages: dict[str, AbstractObject] = {}
        self.imported: set[str] = set()  # modules imported by the statements so far
        self.trees: list[ast.AST] = []
        self.code: dict[AbstractObject, Code] = {}  # of functions that were summarised
        self.counts_subclasses = counts_subclasses  # some statement reads `__subclasses__`
        self._visits = visits
        self._lacks = lru_cache(maxsize=None)(lacks)
        self.left = _STEPS
        self.work_left = _WORK
        self.begin()

    def begin(self, statement: Statement | None = None) -> None:
        """Reset the part of the state that belongs to a single statement, before `statement` is interpreted."""
        self.out = StatementEffect()
        self.changed: set[AbstractObject] = set()
        self.frame: LocalScope | None = None
        self.branches = int(statement is not None and statement.failed)  # the names it binds may or may not be bound
        self.sets_secret = statement is not None and statement.sets_secret
        self.made: dict[object, AbstractObject] = {}
        self._boxes: list[AbstractObject] = []
        self.memo: dict[object, Value] = {}
        self.running: dict[AbstractFunction, LocalScope] = {}  # functions whose bodies are being interpreted
        self.summarised: dict[AbstractObject, Value] = {}  # arguments already applied to each summarised function
        self.stack = 0
        self.steps = 0
        self.work = 0
        self.most_work = max(min(self.work_left, _WORK_OF_ONE), _LEAST_WORK)
        self.shown: ast.AST | None = None  # a call whose value is displayed, and which may serve no other purpose

    def restart(self) -> None:
        """Return to the notebook's top level after Spent, to summarise the statement that was too much work.

        From here on, assignments add possible values to names, as within a branch.
        """
        self.frame, self.branches, self.stack = None, 1, 0
        self.most_work = self.work + _LEAST_WORK
        self.running.clear()

    def spend(self, work: int) -> None:
        """Add `work`, a number of objects looked at, to the current statement's work; raise Spent above the limit."""
        self.work += work
        if self.work > self.most_work:
            raise Spent

    def reach(self, value: Iterable[AbstractObject]) -> set[AbstractObject]:
        """Return these objects and all that can be reached from them through attributes and elements, except packages.

        Their number counts as work of the current statement, so Spent may be raised.
        """
        found = reach(value)
        self.spend(len(found))
        return found

    def lookup(self, name: str) -> Value:
        """Return the possible values of a name in the current scope."""
        frame = self.frame
        innermost = True
        while frame is not None:
            visible = name in frame.values if frame.is_class else name in frame.local
            if visible and (innermost or not frame.is_class):
                return frame.values.get(name, NOTHING)
            innermost = False
            frame = frame.outer
        if self.frame is not None:
            self.out.read.add(name)
        return self.globals.get(name, NOTHING)

    def owner(self, name: str) -> LocalScope | None:
        """Return the scope to which a local name belongs; None if it is a notebook variable."""
        frame = self.frame
        if frame is not None and name in frame.local:
            return frame
        while frame is not None and frame.outer is not None:
            frame = frame.outer
            if name in frame.local and not frame.is_class:
                return frame
        return None

    def bind(self, name: str, value: Value) -> None:
        """Apply an assignment to a name in the code being interpreted: `value` has the possible new values.

        The name may be a local of the current function, a nonlocal one of an enclosing function, or a notebook
        variable.
        """
        frame = self.frame
        if frame is None:
            self.bind_global(name, value)
            return
        if name in frame.local:
            owner: LocalScope | None = frame
        else:  # global or nonlocal
            owner = self.owner(name)
        if owner is None:
            self.bind_weakly(name, value)
            return
        if owner is not frame:
            self.changed.add(owner.box)
        owner.values[name] = owner.values.get(name, NOTHING) | value
        owner.box.hold(value)

    def bind_global(self, name: str, value: Value) -> None:
        """Give a notebook variable new possible values; within a branch, add them to the old ones."""
        before = self.globals.get(name, NOTHING)
        if self.branches and self.frame is None:
            value |= before
        for each in before - value:
            each.names.discard(name)
        for each in value - before:
            each.names.add(name)
        if self.code and value != before and any(each.function for each in value | before):
            self.code = {obj: code for obj, code in self.code.items() if name not in code.names}
        self.globals[name] = value

    def bind_weakly(self, name: str, value: Value) -> None:
        """Add possible values to a notebook variable without removing its old ones, as the assignment may not have run.

        This is used for assignments in functions, and in strings that are run as code.
        """
        self.out.bound.add(name)
        self.bind_global(name, self.globals.get(name, NOTHING) | value)

    def open(self, local: frozenset[str], outer: LocalScope | None, *, is_class: bool = False) -> LocalScope:
        """Return a new scope for a function or class body that will be interpreted within scope `outer`.

        `local` has the names that are local to the body; `is_class` is True for a class body.
        """
        frame = LocalScope(local, outer, is_class)
        self._boxes.append(frame.box)
        return frame

    def box(self, value: Value) -> AbstractObject:
        """Return a new object that holds these values: a container that has no syntax node, such as `*args`."""
        self._boxes.append(AbstractObject())
        self._boxes[-1].hold(value)
        return self._boxes[-1]

    def forget(self) -> None:
        """Free the memory of objects that the current statement created and to which no name or older object refers."""
        made = {*self.made.values(), *self._boxes}
        queue = [each for each in made if each.names or not each.holders <= made]
        retained = set(queue)
        while queue:
            for part in queue.pop().linked() & made - retained:
                retained.add(part)
                queue.append(part)
        for each in made - retained:
            for part in each.linked():
                part.holders.discard(each)

    def make(self, node: object, **more: Any) -> AbstractObject:
        """Return the abstract object for an allocation site, the syntax node `node`, creating it at the first call.

        Within a statement, calls for the same node return the same object. `more` are attributes of a new object.
        """
        key = (node if isinstance(node, tuple) else id(node), *more)
        if key not in self.made:
            self.made[key] = AbstractObject(**more)
        return self.made[key]

    def holding(self, node: object, value: Iterable[AbstractObject], **more: Any) -> Value:
        """Return the object of an allocation site, after adding `value` to its possible elements.

        `node` is the syntax node of the site, and `more` are attributes of a new object.
        """
        obj = self.make(node, **more)
        obj.hold(value)
        return frozenset([obj])

    def package(self, package: str, path: str = "") -> Value:
        """Return the abstract object of a package, or of the member at a dotted path in it."""
        key = f"{package}:{path}"
        if key not in self._packages:
            obj = self._packages[key] = AbstractObject(package=package, path=path, opaque=True)
            if path:
                (top,) = self.package(package)
                top.holders.add(obj)
        return frozenset([self._packages[key]])

    def member(self, package: AbstractObject, name: str) -> Value:
        """Return the abstract object of the attribute `name` of a package or of its member; empty if surely absent."""
        assert package.package is not None
        if not package.find(name) and self._lacks(package.package, package.path, name):
            return NOTHING
        return self.package(package.package, extended(package.path, name))

    def visit(self, node: ast.AST) -> Value:
        """Interpret a node and return its possible values."""
        if self.stack:
            self.steps += 1
        visit = self._visits.get(type(node))
        value = visit(self, node) if visit else self.visit_parts(node)
        self.spend(1 + len(value))
        return value

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        """Interpret several nodes in order, discarding their values."""
        for node in nodes:
            self.visit(node)

    def visit_parts(self, node: ast.AST) -> Value:
        """Interpret the children of a node, and return an object that holds their values, as for `a < b`."""
        inside: set[AbstractObject] = set()
        for each in parts(node):
            inside |= self.visit(each)
        return self.holding(node, inside) if inside and isinstance(node, ast.expr) else NOTHING


Visits = Mapping[type[ast.AST], Callable[[AbstractState, Any], Value]]  # by the type of the node
