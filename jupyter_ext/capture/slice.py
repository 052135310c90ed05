"""Compute a program slice: the executed statements on which the submitted cell depends, in execution order.

If a statement itself reads a name, the name has the value of the last statement that bound it before. If a function
body reads a name, it has the value at the time of the call. Statements in between that may mutate the value are
included.
"""

from __future__ import annotations

import ast
import builtins
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice

from jupyter_ext.capture.facts import FunctionNode, Statement
from jupyter_ext.capture.follow.libraries import ALL_STATES
from jupyter_ext.capture.history import History
from jupyter_ext.capture.loaded import packages_used_by
from jupyter_ext.capture.names import root

# Names that the import system defines in every module.
_MODULE_NAMES = {"__name__", "__file__", "__doc__", "__spec__", "__loader__", "__package__", "__builtins__"}
_OF_IPYTHON = {"display", "get_ipython"}  # IPython adds these to the builtins
_ALWAYS_IMPORTED = ("torch",)  # imported by the training itself
_KNOWN = (frozenset(dir(builtins)) - _OF_IPYTHON) | _MODULE_NAMES


class Slice:
    """Program slice of the submitted statements: the earlier statements on which they depend.

    `needed` has the indices of these statements, and `missing` the names that no statement binds.
    """

    def __init__(
        self,
        history: History,
        start: int,
        also: Iterable[str] = (),
        captured: Iterable[str] = (),
        *,
        end: int | None = None,
        alone: bool = False,
        trains: bool = False,
    ) -> None:
        """Find the earlier statements on which the statements from `start` on, and the names in `also`, depend.

        Values of `captured` names are sent in files, so that statements that compute or change them are not needed.
        With `alone`, statements that change process-wide settings are left out, although they may affect any statement.
        If `trains` is set, the submitted statements train; then earlier random draws after the last seed, such as those
        of a test run in the notebook, are left out. `start` and `end` are indices; statements from `end` on are
        ignored.
        """
        self.trains = trains
        self.history, self.captured = history, frozenset(captured)
        self.start, self.end = start, len(history.executed) if end is None else end
        self.needed: set[int] = set()
        self.missing: dict[str, int] = {}  # name -> time of its first use
        self.given: set[str] = set()  # captured names whose values from before the submitted statements are used
        self._from_before: set[str] = set()  # names that the submitted statements use with a value from before them
        self._resolved: set[tuple[str, int]] = set()
        self._queue: list[tuple[str, int, bool]] = []
        self._due: list[int] = []  # times of statements that change settings used by needed statements
        self._used_by = lru_cache(maxsize=None)(packages_used_by)
        for time in range(start, self.end):
            self._take(time, self.end)
        self._queue += [(name, self.end, True) for name in also]
        self._work()
        if not alone:
            self._due += [time for time in self.history.ambient if time < start]
            self._due += self._settings(_ALWAYS_IMPORTED, start)
            self._work()

    @property
    def read(self) -> frozenset[str]:
        """Return all names that the needed statements read."""
        return frozenset(name for name, _ in self._resolved)

    @property
    def packages(self) -> frozenset[str]:
        """Return all packages that needed statements import, including those that project packages use."""
        statements = [self.history.executed[time] for time in self.needed]
        imported = {each for statement in statements for each in (statement.packages | statement.packages_later)}
        return frozenset(imported.union(*map(self._used_by, imported)))

    @property
    def compared(self) -> tuple[str, ...]:
        """Return the names of values that the submitted cell uses but does not change.

        The job compares these values with those of the notebook, to detect differences. Names of functions, classes and
        imports are left out.
        """
        used = {name for name, time in self._resolved if time >= self.start}
        return tuple(sorted(name for name in used if self._stays(name)))

    @property
    def taken_over(self) -> tuple[str, ...]:
        """Return the names of values from earlier cells that the submitted cell uses, even if it changes them later.

        Names of functions, classes and imports are left out.
        """
        return tuple(sorted(name for name in self._from_before if self.is_value(name)))

    @property
    def changed(self) -> tuple[str, ...]:
        """Return the names of values from earlier cells that the submitted cell may change in place."""
        found = (name for name, times in self.history.changers.items() if times[-1] >= self.start)
        return tuple(sorted(name for name in found if name in self.captured or self.is_value(name)))

    @property
    def bound_up(self) -> frozenset[str]:
        """Return the names of values that needed statements before the submitted cell change by methods of given ones.

        To run such a statement again, as `model.compile("adam", half)` for `half`, would change the given `model`.
        """
        times = (time for time in self.needed if time < self.start and self._calls_given(time))
        found = frozenset(name for time in times for name in self.history.names_at(time))
        return frozenset(name for name in (found & self.read) - self.given if self.is_value(name))

    def _calls_given(self, time: int) -> bool:
        called = [getattr(node, "value", None) for node in self.history.executed[time].nodes]
        return any(isinstance(each, ast.Call) and root(each)[0] in self.given for each in called)

    def makers(self, name: str, captured: Iterable[str] = ()) -> set[int]:
        """Return the indices of all statements on which the value of `name` before the submitted cell depends.

        The values of the names in `captured` count as given: a statement that is needed only to compute them is left
        out.
        """
        captured = self.captured.union(captured)
        return Slice(self.history, self.start, [name], captured, end=self.start, alone=True).needed

    def is_value(self, name: str) -> bool:
        """Return True if `name` has a value before the submitted cell that is no function, class or import."""
        binders = self.history.binders.get(name, [])
        position = bisect_left(binders, self.start)
        if position == 0 or name in self.captured:
            return False
        last = self.history.executed[binders[position - 1]]
        return name not in last.imports and not any(_defines(node, name) for node in last.nodes)

    def _stays(self, name: str) -> bool:
        binders, changers = self.history.binders.get(name, ()), self.history.changers.get(name, ())
        if any(times and times[-1] >= self.start for times in (binders, changers)):
            return False
        return self.is_value(name)

    def _work(self) -> None:
        while self._queue or self._due:
            if not self._queue:
                time = self._due.pop()
                if time not in self.needed:
                    self._take(time, time)
                continue
            name, time, required = self._queue.pop()
            if (name, time) not in self._resolved:
                self._resolved.add((name, time))
                self._resolve(name, time, required)

    def _take(self, time: int, used: int) -> None:
        """Mark the statement at index `time` as needed; functions that it defines count as called at index `used`."""
        statement = self.history.executed[time]
        self.needed.add(time)
        must = not statement.failed
        self._queue += [(name, time, must and name not in statement.binds) for name in statement.now]
        self._queue += [(name, time, False) for name in self.history.read[time]]
        self._queue += [(name, time, False) for name in statement.annotations]
        self._take_settings(time)
        for name in statement.later:
            found = self._before(name, used)
            self._queue.append((name, used, must and not found and used == self.end))
            if used != self.end:
                self._queue.append((name, self.end, must and not found))

    def _take_settings(self, time: int) -> None:
        """Add the statements that changed settings of the packages which the statement at index `time` imports."""
        statement = self.history.executed[time]
        if statement.packages:
            self._due += self._settings(statement.packages, time)
        if statement.packages_later:
            self._due += self._settings(statement.packages_later, self.end)

    def _settings(self, packages: Iterable[str], until: int) -> list[int]:
        """Return the indices below `until` of statements that change settings of `packages` or of packages they use."""
        set_in = self.history.settings
        used = {each for package in packages for each in ({package} | self._used_by(package)) & set_in.keys()}
        return sorted({time for package in used for time in set_in[package] if time < until})

    def take_stars(self) -> None:
        """Add every `from x import *` statement to the slice, with its dependencies."""
        for time in self.history.stars:
            self._take(time, self.end)
        self._work()

    def _before(self, name: str, time: int) -> bool:
        binders = self.history.binders.get(name, [])
        return bool(binders) and binders[0] < time

    def _resolve(self, name: str, time: int, required: bool) -> None:
        binders = self.history.binders.get(name, [])
        position = bisect_left(binders, time)
        if name in self.captured:
            if position == 0 or min(self._binding(name, binders[:position])) < self.start:
                self.given.add(name)
            return
        if position == 0:
            if required and name not in _KNOWN:
                self.missing.setdefault(name, time)
            return
        if self.trains and time >= self.start and name in ALL_STATES:
            seeds = (each for each in reversed(binders[:position]) if not self.history.binds[each][name])
            for seed in islice(seeds, 1):
                self._take(seed, time)
            return
        first = time
        found = self._binding(name, binders[:position])
        if time >= self.start and min(found) < self.start:
            self._from_before.add(name)
        for binder in found:
            self._take(binder, time)
            first = min(first, binder)
        changers = self.history.changers.get(name, [])
        for changer in changers[bisect_left(changers, first + 1) : bisect_left(changers, time)]:
            self._take(changer, changer)

    def _binding(self, name: str, binders: Sequence[int]) -> list[int]:
        """Return the indices of statements that may have bound `name`, newest first, back to one that surely did.

        A conditional assignment, for example, may have bound it. `binders` are the indices of all statements that bind
        `name`, in order. If the newest one is an import, earlier imports of submodules are added.
        """
        found: list[int] = []
        for time in reversed(binders):
            found.append(time)
            if not self.history.binds[time][name]:
                break
        if name in self.history.executed[found[0]].imports:
            found += self._submodules(name, binders)
        return found

    def _submodules(self, name: str, binders: Sequence[int]) -> list[int]:
        """Return the indices of earlier imports of submodules, which a later import of the package does not replace.

        For example, `import torch.utils.data` still applies after `import torch`.
        """
        texts: dict[str, int] = {}
        for time in binders:
            statement = self.history.executed[time]
            if name in statement.dotted:
                texts.setdefault(_imported(statement), time)
        return list(texts.values())


def _defines(node: ast.stmt, name: str) -> bool:
    return isinstance(node, FunctionNode | ast.ClassDef) and node.name == name


def _imported(statement: Statement) -> str:
    return "; ".join(ast.unparse(node) for node in statement.nodes)
