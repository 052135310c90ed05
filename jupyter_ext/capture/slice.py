"""A time-ordered slice: which executed statements the submitted cell depends on, in the order in which they ran.

A name that a statement reads *now* has the value of its last binder before that statement; a name that a function
body reads *later* has it as of its use. Statements in between that may change the value in place come along.
"""

from __future__ import annotations

import ast
import builtins
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

from jupyter_ext.capture.facts import Change, Effects, Statement
from jupyter_ext.capture.secrets import SECRET, find_secrets

# Given by the import system to every module.
_MODULE_NAMES = {"__name__", "__file__", "__doc__", "__spec__", "__loader__", "__package__", "__builtins__"}
_KNOWN = frozenset(dir(builtins)) | _MODULE_NAMES
# Calls on a module that set something: `torch.manual_seed(0)`, `np.random.seed(0)`, `sys.path.append(...)`.
_SETTING = re.compile(
    r"_*(set|seed|manual_seed|use|enable|disable|register|add|update|append|insert|extend|remove|filter|simplefilter"
    r"|basicConfig|config)"
)
_DRAWING = {"matplotlib", "seaborn", "plotly", "IPython", "pprint", "bokeh", "altair", "rich"}
# What any later statement may depend on without naming it.
_AMBIENT = {("sys", "path"), ("os", "environ")}


class History:
    """All executed statements in order, indexed by what they bind and what they may change."""

    def __init__(self, executed: Sequence[Statement]) -> None:
        self.executed = executed
        self.binders: dict[str, list[int]] = defaultdict(list)
        self.changers: dict[str, list[int]] = defaultdict(list)
        self.ambient: list[int] = []
        self.stars: list[int] = []
        self._packages: dict[str, str] = {}  # import-bound name -> package
        self._objects: dict[str, frozenset[object]] = {}  # name -> what it may share with others
        self._holders: dict[object, set[str]] = defaultdict(set)  # and the other way round
        self._effects: dict[str, Effects] = {}
        for time, statement in enumerate(executed):
            self._read(time, statement)

    def _read(self, time: int, statement: Statement) -> None:
        extended = {change.name for change in statement.changes if change.how == "store" and not change.path}
        # Of `a, b = b, a` the right side is what they held before.
        former = [self._held(other) for _, other in statement.aliases]
        for name, perhaps in statement.binds.items():
            self._packages.pop(name, None)
            self.binders[name].append(time)
            before = self._held(name) if perhaps else frozenset[object]()
            if name not in extended:  # `xs += [1]` is still the same list
                self._hold(name, before | {(name, time)})
        for name, package in statement.imports.items():
            self._packages[name] = package
            self._hold(name, frozenset([package]))
        for (name, other), objects in zip(statement.aliases, former, strict=True):
            self._hold(name, self._held(name) | self._held(other) | objects)
        self._effects |= statement.effects
        if statement.star:
            self.stars.append(time)
        for name in self._changed(time, statement):
            self.changers[name].append(time)

    def _held(self, name: str) -> frozenset[object]:
        return self._objects.get(name, frozenset([name]))

    def _hold(self, name: str, objects: frozenset[object]) -> None:
        for each in self._objects.get(name, ()):
            self._holders[each].discard(name)
        self._objects[name] = objects
        for each in objects:
            self._holders[each].add(name)

    def _changed(self, time: int, statement: Statement) -> set[str]:
        names = {change.name for change in statement.changes if self._counts(change, statement)}
        for change in statement.changes:
            package = self._packages.get(change.name)
            if package and self._counts(change, statement) and change.path and (package, change.path[0]) in _AMBIENT:
                self.ambient.append(time)
        for function in statement.calls:
            names |= self._by_calling(function)
        return names.union(*(self._holders.get(each, ()) for name in names for each in self._held(name)))

    def _counts(self, change: Change, statement: Statement) -> bool:
        package = self._packages.get(change.name) or statement.imports.get(change.name)
        if package == "os" and change.path[:1] == ("environ",) and sets_secret(statement):
            return False
        if change.how == "method":
            return package is None or bool(change.path and _SETTING.match(change.path[-1]))
        if change.how == "argument":
            called = self._effects.get(change.function or "")
            drawing = self._packages.get(change.function or "") in _DRAWING
            return package is None and not drawing and (called is None or called.arguments)
        return True

    def _by_calling(self, function: str) -> set[str]:
        found: set[str] = set()
        seen, queue = set[str](), [function]
        while queue:
            name = queue.pop()
            if name not in seen and name in self._effects:
                seen.add(name)
                found |= self._effects[name].changes
                queue.extend(self._effects[name].calls)
        return found


def sets_secret(statement: Statement) -> bool:
    """Whether `os.environ["API_KEY"] = ...` is in it: such values stay out of snapshots."""
    sets = any(change.path[:1] == ("environ",) for change in statement.changes)
    texts = (ast.unparse(node) for node in statement.nodes) if sets else ()
    return any(SECRET.search(text) or find_secrets(text) for text in texts)


class Slice:
    """What the statements from `start` on, and the names `also`, need: `needed` times, and names `missing`."""

    def __init__(self, history: History, start: int, also: Iterable[str] = (), captured: Iterable[str] = ()) -> None:
        """`captured` names travel as values: nothing that makes or changes them is needed."""
        self.history, self.captured = history, frozenset(captured)
        self.start, self.end = start, len(history.executed)
        self.needed: set[int] = set()
        self.missing: dict[str, int] = {}  # name -> time of its first use
        self._resolved: set[tuple[str, int]] = set()
        self._queue: list[tuple[str, int, bool]] = []
        for time in range(start, self.end):
            self._take(time, self.end)
        self._queue += [(name, self.end, True) for name in also]
        self._work()
        if any(time < start for time in self.needed):
            for time in self.history.ambient:
                self._take(time, time)
            self._work()

    @property
    def read(self) -> frozenset[str]:
        """All the names that something needed reads."""
        return frozenset(name for name, _ in self._resolved)

    @property
    def compared(self) -> tuple[str, ...]:
        """Names used whose values before `start` must be those at the end, too: the target does not change them.

        Names of functions, classes and imports are not among them.
        """
        used = {name for name, time in self._resolved if time >= self.start}
        return tuple(sorted(name for name in used if self._stays(name)))

    def _stays(self, name: str) -> bool:
        binders, changers = self.history.binders.get(name, ()), self.history.changers.get(name, ())
        if not binders or name in self.captured:
            return False
        if any(times and times[-1] >= self.start for times in (binders, changers)):
            return False
        last = self.history.executed[binders[-1]]
        return name not in last.effects and name not in last.imports

    def _work(self) -> None:
        while self._queue:
            name, time, required = self._queue.pop()
            if (name, time) not in self._resolved:
                self._resolved.add((name, time))
                self._resolve(name, time, required)

    def _take(self, time: int, used: int) -> None:
        """Statement `time` is needed, with the functions that it makes used at `used`."""
        statement = self.history.executed[time]
        self.needed.add(time)
        self._queue += [(name, time, True) for name in statement.now]
        self._queue += [(name, time, False) for name in statement.annotations]
        for name in statement.later:
            found = self._before(name, used)
            self._queue.append((name, used, not found and used == self.end))
            if used != self.end:
                self._queue.append((name, self.end, not found))

    def take_stars(self) -> None:
        """Take every `from x import *` along."""
        for time in self.history.stars:
            self._take(time, self.end)
        self._work()

    def _before(self, name: str, time: int) -> bool:
        binders = self.history.binders.get(name, [])
        return bool(binders) and binders[0] < time

    def _resolve(self, name: str, time: int, required: bool) -> None:
        if name in self.captured:
            return
        binders = self.history.binders.get(name, [])
        position = bisect_left(binders, time)
        if position == 0:
            if required and name not in _KNOWN:
                self.missing.setdefault(name, time)
            return
        first = time
        for binder in self._binding(name, binders[:position]):
            self._take(binder, time)
            first = min(first, binder)
        changers = self.history.changers.get(name, [])
        for changer in changers[bisect_left(changers, first + 1) : bisect_left(changers, time)]:
            self._take(changer, changer)

    def _binding(self, name: str, binders: Sequence[int]) -> list[int]:
        """The last binder, and those before it for as long as a binder binds only perhaps."""
        found: list[int] = []
        for time in reversed(binders):
            found.append(time)
            if not self.history.executed[time].binds[name]:
                break
        if name in self.history.executed[found[0]].imports:
            found += self._submodules(name, binders)
        return found

    def _submodules(self, name: str, binders: Sequence[int]) -> list[int]:
        """`import torch.utils.data` in an earlier cell still counts after `import torch` in a later one."""
        texts: dict[str, int] = {}
        for time in binders:
            statement = self.history.executed[time]
            if name in statement.dotted:
                texts.setdefault(_imported(statement), time)
        return list(texts.values())


def _imported(statement: Statement) -> str:
    return "; ".join(ast.unparse(node) for node in statement.nodes)
