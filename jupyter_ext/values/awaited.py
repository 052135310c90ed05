"""Wait for the values that jobs set, and bind them in the notebook, before a cell that reads them runs."""

from __future__ import annotations

import ast
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from IPython.core.error import InputRejected
from IPython.core.getipython import get_ipython
from IPython.display import display

from jupyter_ext.capture.cells import parse_cell
from jupyter_ext.job.job import Job
from jupyter_ext.job.outcome import raise_if_failed
from jupyter_ext.job.unfinished import goes_on, until_it_stops, waiting_line
from jupyter_ext.job.values import JobValues
from jupyter_ext.values.limit import READ_S, limited
from jupyter_ext.values.reads import reads
from kernel_backend.client import Client
from kernel_backend.commands.artifacts import why_missing
from kernel_backend.errors import DaylightError, NotFound, ServiceUnreachable
from kernel_backend.model.states import ExperimentState
from kernel_backend.model.values import listed
from kernel_backend.printable import harmless
from kernel_backend.snapshots.trainers import TrainedTrainer
from kernel_backend.text import duration
from kernel_backend.text.terminal import tell

MARK = "application/vnd.daylight.values+json"  # in the metadata of what is displayed, to tell it from cells' outputs
_MISSING = object()  # value of a name that the notebook did not have at the submission
_LISTED = 6  # names that a line lists
_SUBMITS = re.compile(r"\s*%%dl(?:submit|run)\b")
_LOOKS = frozenset({"--dry-run", "--as-script", "--help", "-h"})  # options with which nothing is submitted


class NotRun(InputRejected):
    """Error: a cell was not run, as a value that it reads cannot come from its job, or the user stopped waiting."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self._text = f"{kind}: {message}"

    def _render_traceback_(self) -> list[str]:
        return harmless(self._text).splitlines()


class Absent(NamedTuple):
    """A value that could not come from its job: why, and what the notebook had under its name at the submission."""

    why: str
    before: Any = _MISSING


@dataclass
class Expected:
    """Values that a job will set: their names, what the notebook had under these, and the submitted cell.

    `before` has those that it may set, too, for which no cell waits. `makes` is code that creates the Trainer of the
    submitted cell, which cannot travel.
    """

    job: Job
    client: Client
    before: Mapping[str, Any]  # by name
    cell: str
    names: frozenset[str]
    makes: str = ""
    seen: list[tuple[float, float]] = field(default_factory=list)  # time, and epochs trained at it


class AwaitedValues:
    """Values on their way from jobs to one notebook."""

    def __init__(self, held: dict[str, Any]) -> None:
        """Set up for the notebook's variables `held`, which are changed when values arrive."""
        self._held = held
        self._by_name: dict[str, Expected] = {}
        self._bound: dict[str, Any] = {}  # values that came from jobs, by name
        self._absent: dict[str, Absent] = {}  # values that could not come, by name

    def expect(
        self, job: Job, client: Client, names: Iterable[str], cell: str, used: Iterable[str] = (), makes: str = ""
    ) -> None:
        """Await the values `names`, which the submitted `cell` sets in a job; for each name the last job counts.

        Those of the names `used` that the job turns out to have changed are bound with them. `makes` is code that
        creates the cell's Trainer anew, to get what the job has made of its own.
        """
        own = frozenset(names)
        before = {name: self._held.get(name, _MISSING) for name in own.union(used)}
        self._by_name |= dict.fromkeys(own, Expected(job, client, before, _text(cell), own, makes))

    def bind_for(self, cell: str) -> None:
        """Wait for the values that a cell reads, and bind them; raises NotRun if one of them cannot come.

        A cell that is submitted once more does not wait for its first job: it begins with the notebook's values.
        """
        names = self._by_name.keys() | self._absent.keys()
        if not names or _only_looks(cell):
            return
        text = _text(cell)
        wanted = reads(parse_cell(text), names, self._held)
        due = {found.job.number: found for name in wanted if (found := self._by_name.get(name)) and found.cell != text}
        for _, each in sorted(due.items()):
            self._await(each, wanted)
        for name in sorted(wanted & self._absent.keys()):
            absent = self._absent[name]
            if name not in self._held:
                raise NotRun("NotFound", absent.why)
            del self._absent[name]
            if self._held[name] is absent.before:
                raise NotRun(
                    "NotFound", f"{absent.why}\nrun the cell again to use the notebook's {name}, from before it"
                )

    def bind(self, job: Job, names: Collection[str] = (), renamed: str = "", trial: int | None = None) -> None:
        """Bind values of a job now, all or those of `names`, over what the notebook has; `renamed` names the only one.

        Raises NotFound for a name that the job has not set, and errors of reading the values.
        """
        values = job.values(trial)
        chosen = {name: values[name] for name in names or values}
        if renamed:
            (value,) = chosen.values()
            chosen = {renamed: value}
        self._take(job, values, chosen)
        tell(_came(job, values, sorted(chosen)))

    @property
    def bound(self) -> list[str]:
        """Return the names that have values of jobs, and that the user has not bound again since."""
        return [name for name, value in self._bound.items() if self._held.get(name, _MISSING) is value]

    def arrived(self, job: Job) -> None:
        """Bind what is awaited of a job that has ended; a note says if it has stored no values."""
        for expected in {id(each): each for each in self._by_name.values() if each.job is job}.values():
            try:
                self._bind(expected, set(), _Line())
            except DaylightError as error:
                self._forget(expected)
                tell(f"note: {error.message}")

    def _await(self, expected: Expected, wanted: set[str]) -> None:
        number, line = expected.job.number, _Line()
        try:
            self._wait(expected, line)
            self._bind(expected, wanted, line)
        except KeyboardInterrupt:
            line.end(f"waited for #{number}")
            raise NotRun("Interrupted", f"stopped waiting for #{number}, which goes on; the cell has not run") from None
        except ServiceUnreachable as error:
            raise NotRun("ServiceUnreachable", error.message) from error
        except DaylightError as error:
            self._forget(expected)
            line.end(f"waited for #{number}")
            name = ", ".join(sorted(wanted & expected.before.keys()))
            after = f"{name} would have come from #{number}; run the cell again to use what the notebook has"
            raise NotRun(type(error).__name__, f"{error.message}\n{after}") from error

    def _bind(self, expected: Expected, wanted: set[str], line: _Line) -> None:
        """Bind the values that are `expected` of a job which has ended, but for names that the user has bound since."""
        job = expected.job
        with limited(READ_S, f"%dl values {job.number} reads them without a limit") as again:

            def arriving(text: str) -> None:
                again()
                line.show(text)

            values = job.values(wait=False, arriving=arriving)
        ours = [name for name in expected.before if self._is_due(name, expected) and name in values]
        theirs = [name for name in ours if self._held.get(name, _MISSING) is not expected.before[name]]
        chosen = {name: values[name] for name in ours if name not in theirs}
        line.show(_came(job, values, sorted(chosen, key=lambda name: (name not in wanted, name))))
        self._take(job, values, chosen)
        for name in sorted(theirs):
            tell(
                f"note: {name} was set here since, and stays; %dl values {job.number} {name} --as NAME brings the job's"
            )
        known = values.keys() | values.index.missing.keys() | {*values.index.unchanged}
        if other := sorted((expected.before.keys() & wanted & self._held.keys()) - known):
            tell(
                f"note: {', '.join(other)} may hold what #{job.number} has changed in the job, and stays as it was here"
            )
        for name in values.index.missing:
            before = expected.before[name] if name in expected.names else _MISSING
            self._absent[name] = Absent(why_missing(job.number, values.index, name), before)

    def _is_due(self, name: str, expected: Expected) -> bool:
        """Return True if no later job sets the value, and it has not come yet."""
        return self._by_name.get(name, None if name in expected.names else expected) is expected

    def _wait(self, expected: Expected, line: _Line) -> None:
        job = expected.job
        for now in until_it_stops(expected.client, job.overview):
            if not goes_on(now):
                raise_if_failed(now)
                if now.experiment.state != ExperimentState.COMPLETED:
                    stopped = f"experiment #{job.number} is {now.state}, and its program has not come to its end"
                    raise NotFound(f"{stopped}: job.load() has the weights of its newest checkpoint")
                return
            if now.front is not None:
                expected.seen.append((time.monotonic(), now.front.epoch))
            left = _time_left(expected.seen, now.experiment.config.known_epochs)
            line.show(f"{waiting_line(now)}{left}; interrupt to stop waiting")

    def _take(self, job: Job, values: JobValues, chosen: Mapping[str, Any]) -> None:
        named = chosen.keys() & values.keys()  # one that is bound under another name stays as it is
        trainers = {name: chosen[name] for name in named if isinstance(chosen[name], TrainedTrainer)}
        arrived = {name: each for name, each in chosen.items() if name not in trainers}
        self._held.update(arrived)
        self._bound |= arrived
        self._put_into(trainers, job)
        if values.random is not None:
            set_random(values.random)
        for expected in {id(each): each for each in self._by_name.values()}.values():
            if expected.job.number == job.number:
                self._forget(expected)

    def _put_into(self, trainers: Mapping[str, TrainedTrainer], job: Job) -> None:
        """Bring what a job has made of its Trainer into the notebook's, which the submitted cell's code creates.

        Without that code the state itself is bound, unless the notebook has a Trainer of that name.
        """
        makes = next((each.makes for each in self._by_name.values() if each.job.number == job.number), "")
        for place, (name, trained) in enumerate(trainers.items()):
            try:
                if makes and place == 0:  # two names of one Trainer are of one here, too
                    exec(compile(makes, f"<Trainer of #{job.number}>", "exec"), self._held)
                if name in self._held:
                    trained.put_into(self._held[name])
                else:
                    self._held[name] = trained
            except Exception as error:  # of the user's code, as a Trainer for GPUs that the notebook lacks
                self._absent[name] = Absent(
                    f"{name} could not be made again here: {type(error).__name__}: {error}. "
                    f"%dl values {job.number} {name} --as NAME brings its state, and job.metrics() has its numbers",
                    self._held.get(name, _MISSING),
                )

    def _forget(self, expected: Expected) -> None:
        self._by_name = {name: each for name, each in self._by_name.items() if each is not expected}


class BindFirst(ast.NodeTransformer):
    """Transformer of cells, as IPython calls it before each: it changes nothing, and may refuse the cell by NotRun."""

    def __init__(self, begins: Callable[[], str | None], awaited: AwaitedValues) -> None:
        """Set up with `begins`, which returns the text of a cell that has just begun, else None."""
        self._begins, self._awaited = begins, awaited

    def visit(self, node: ast.AST) -> ast.AST:
        """Bind what the cell reads, and return its tree as it is."""
        if (cell := self._begins()) is not None:
            try:
                self._awaited.bind_for(cell)
            except InputRejected:
                raise
            except Exception as error:  # IPython would call no transformer any more that raises anything else
                tell(f"note: no values of jobs were looked for: {type(error).__name__}: {error}", file=sys.stderr)
        return node


class _Line:
    """One line of output that can be replaced; outside of a kernel each text is printed once."""

    def __init__(self) -> None:
        shell = get_ipython()
        self._replaces = getattr(shell, "kernel", None) is not None
        self._handle: Any = None
        self._shown = ""

    def end(self, text: str) -> None:
        """Show a text in place of the last one, if there is one that can be replaced."""
        if self._handle is not None:
            self.show(text)

    def show(self, text: str) -> None:
        """Show a text in place of the last one."""
        if text == self._shown:
            return
        self._shown = text
        data: dict[str, str] = {"text/plain": text}
        about: dict[str, dict[str, str]] = {MARK: {}}
        if not self._replaces:
            tell(text)
        elif self._handle is None:
            self._handle = display(data, raw=True, metadata=about, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(data, raw=True, metadata=about)


def set_random(states: Mapping[str, Any]) -> None:
    """Set the notebook's random generators to the states that a job's had at its end."""
    from kernel_backend.runner.determinism.random_states import RandomStates

    RandomStates().load_state_dict(dict(states))


def _came(job: Job, values: JobValues, names: Sequence[str]) -> str:
    rank = " (rank 0)" if values.index.slots > 1 else ""
    return f"from #{job.number}{rank}: {listed(names, _LISTED) or 'nothing'}"


def _time_left(seen: list[tuple[float, float]], epochs: int | None) -> str:
    """Return the time that the remaining epochs take at the pace since the first look, as text; "" if unknown."""
    (began, first), (now, last) = (seen[0], seen[-1]) if seen else ((0.0, 0.0), (0.0, 0.0))
    if epochs is None or last <= first or last >= epochs:
        return ""
    return f", about {duration((epochs - last) * (now - began) / (last - first))} left"


def _text(cell: str) -> str:
    """Return a submitted cell without the line of its magic: another `lr` on it makes no other cell."""
    return cell.lstrip().partition("\n")[2].strip() if _SUBMITS.match(cell) else cell


def _only_looks(cell: str) -> bool:
    return bool(_SUBMITS.match(cell)) and not _LOOKS.isdisjoint(cell.lstrip().partition("\n")[0].split())
