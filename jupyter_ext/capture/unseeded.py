"""Find values that were drawn without a seed, so that a job would compute others; small ones are sent with the job.

Large ones prevent the submission. For data of a training loop, and for what the submitted cell may change, a note says
that the job draws others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import FunctionType, ModuleType
from typing import NamedTuple

from jupyter_ext.capture.executed import Executed
from jupyter_ext.capture.follow.libraries import STATES
from jupyter_ext.capture.history import History
from jupyter_ext.capture.problems import Problem
from jupyter_ext.capture.slice import Slice
from jupyter_ext.capture.values import Refused, Unstorable, Values
from kernel_backend.snapshots.object_graph import parts_of
from kernel_backend.snapshots.random_states import SEEDING

LIMIT = 32 * 2**20  # bytes of each value
_PARTS = 1000  # of a value, that are looked at
_PLAIN = (int, float, complex, str, bytes, bytearray, range, slice, type(None), list, tuple, dict, set, frozenset)
_PACKAGES = ("numpy", "pandas", "collections", "datetime", "decimal", "fractions", "scipy", "polars")
_OF_DATA = ("Dataset", "DataLoader", "Sampler")
_TRAINS = re.compile(r"\.(fit|backward)\(")
_FILES = (
    ("numpy", "ndarray", 'np.save("{0}.npy", {0})', 'np.load("{0}.npy")'),
    ("torch", "Tensor", 'torch.save({0}, "{0}.pt")', 'torch.load("{0}.pt")'),
    ("pandas", "DataFrame", '{0}.to_pickle("{0}.pkl")', 'pd.read_pickle("{0}.pkl")'),
    ("pandas", "Series", '{0}.to_pickle("{0}.pkl")', 'pd.read_pickle("{0}.pkl")'),
)


@dataclass
class Unseeded:
    """Values drawn without a seed: `held` are sent with the submission; each other one has a problem or a note."""

    held: Values = field(default_factory=Values)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def unseeded(executed: Executed, sliced: Slice, namespace: Mapping[str, object] | None) -> Unseeded:
    """Capture the notebook values that the submitted cell needs and that would differ if computed again.

    This includes data that the cell changes. Initial weights of a torch module are not captured: the job draws them
    with its own seed, unless a cell has trained the module. It also makes what belongs to such a module that the cell
    uses: an optimizer, a schedule, a copy of its weights. Data of a training loop that cannot be sent has a note.
    """
    found, history = Unseeded(), sliced.history
    doubtful = (history.by_chance | history.by_hash) & sliced.needed
    if namespace is None or not doubtful:
        return found
    compared = sliced.compared
    learnt = {each for each in {*compared, *sliced.taken_over} & namespace.keys() if _holds_learnt(namespace[each])}
    for name in dict.fromkeys([*compared, *sliced.taken_over]):
        makers = sliced.makers(name) & sliced.needed if name in namespace else set[int]()
        if not makers & doubtful:
            continue
        of_loop = sliced.trains and is_data(namespace[name])
        if name in compared and not of_loop:
            trained = any(_TRAINS.search(executed.text(time)) for time in makers)
            belongs = _holds_learnt(namespace[name]) or bool(_read_last(name, sliced) & learnt)
            names = [name] if trained or not belongs else []
        else:
            names = _origins(name, makers, sliced, namespace)
        for each in names:
            drawing = sliced.makers(each) & sliced.needed & history.by_chance
            why = _hold(each, found.held, namespace)
            if not why or not drawing:  # the order of a set may be equal in the job, which compares the values
                continue
            not_sent = _NotSent(each, *_place(executed, max(drawing)), why)
            if of_loop or name not in compared:
                found.notes.append(not_sent.note)
            elif all(problem.name != each for problem in found.problems):
                found.problems.append(not_sent.problem(namespace[each]))
    _hold_sharers(found.held, sliced, namespace)
    found.notes = list(dict.fromkeys(found.notes))
    return found


def _hold(name: str, held: Values, namespace: Mapping[str, object]) -> Refused | None:
    """Serialise the value of `name` into `held`; return the reason if this is impossible."""
    try:
        if name not in held.written:
            held.add(name, namespace, LIMIT)
    except Refused as refused:
        return refused
    return None


def _hold_sharers(held: Values, sliced: Slice, namespace: Mapping[str, object]) -> None:
    """Hold the values, too, of which a part is held, and which the job would make without the names that are held.

    The job would otherwise have two of that part, such as a list of losses that an object and the cell use.
    """
    shared: dict[int, object] = {}
    queue = list(held.written)
    others = [name for name in (*sliced.compared, *sliced.taken_over) if name in namespace]
    for each in queue:
        shared |= parts_of(namespace[each])
        for name in others:
            if name in held.written or not any(id(part) in shared for part in _parts(namespace[name])):
                continue
            makers = sliced.makers(name, held.written)
            if not any(sliced.history.executed[time].now & held.written.keys() for time in makers):
                queue += [name] if not _hold(name, held, namespace) else []


def _origins(name: str, makers: set[int], sliced: Slice, namespace: Mapping[str, object]) -> list[str]:
    """Return the names whose values to send, so that the job can rebuild `name`, which the submitted cell may change.

    `makers` are the indices of the statements that compute `name`. Plain data is sent itself. Loaders and other objects
    are built in the job from the data that was drawn for them, which is sent, so that several objects still share it.
    Loaders and datasets that draw their data themselves are sent. Other objects, such as a log writer named after the
    time, are built in the job, and weights are drawn with the job's seed.
    """
    if _is_plain(namespace[name]):
        return [name]
    history = sliced.history
    doubtful = makers & (history.by_chance | history.by_hash)
    drawn = {each for time in doubtful for each in history.names_at(time)}
    final = [each for each in sorted(drawn - {name}) if _is_final(each, makers, sliced, namespace)]
    data = [each for each in final if each in sliced.read and is_data(namespace[each])]
    if is_data(namespace[name]) and sliced.makers(name, final) & doubtful:
        return [*data, name]
    return data


def _is_final(name: str, makers: set[int], sliced: Slice, namespace: Mapping[str, object]) -> bool:
    """Return True if all statements in `makers` that read `name` came after its last change before the submitted cell.

    These statements, given by their indices, have then read the value that the notebook has now.
    """
    if name not in namespace or not sliced.is_value(name):
        return False
    history = sliced.history
    times = {*history.binders.get(name, ()), *history.changers.get(name, ())}
    last = max(time for time in times if time < sliced.start)
    readers = {time for time in makers - times if name in history.executed[time].now | history.read[time]}
    return last in makers and all(time > last for time in readers)


def is_data(value: object) -> bool:
    """Return True if a value is plain, or a dataset, sampler or loader of torch that holds no weights."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, tuple(getattr(torch.utils.data, each) for each in _OF_DATA)):
        return not _holds_weights(value)
    return _is_plain(value)


def _is_plain(value: object) -> bool:
    """Return True if a value consists of numbers, text, arrays, tensors without gradients and tables."""
    return all(_is_of_plain_kind(each) for each in _parts(value)) and not _holds_weights(value)


def _is_of_plain_kind(value: object) -> bool:
    kind = type(value)
    if kind.__module__ == "builtins":
        return isinstance(value, _PLAIN)
    return kind.__module__.partition(".")[0] in _PACKAGES or (kind.__module__, kind.__name__) == ("torch", "Tensor")


def _read_last(name: str, sliced: Slice) -> set[str]:
    """Return the names that the statement reads which bound `name` last before the submitted cell."""
    times = [time for time in sliced.history.binders.get(name, ()) if time < sliced.start]
    return sliced.history.executed[times[-1]].now if times else set()


def _holds_learnt(value: object) -> bool:
    """Return True if a value is, or holds, a torch module or an optimizer, as a schedule does.

    Sent by itself, it would have another one than the job.
    """
    return any(map(_is_learnt, _parts(value)))


def _holds_weights(value: object) -> bool:
    """Return True if a value is, or holds, a torch module, an optimizer, or a tensor that is trained."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return any(_is_learnt(each) or (isinstance(each, torch.Tensor) and each.requires_grad) for each in _parts(value))


def _parts(value: object) -> Iterator[object]:
    """Yield a value and the values in its containers and attributes, level by level, up to a limited number."""
    queue, seen = [value], {id(value)}
    for each in queue:
        yield each
        if isinstance(each, dict):
            inner: Iterable[object] = each.values()
        elif isinstance(each, list | tuple | set | frozenset):
            inner = each
        elif isinstance(each, type | ModuleType | FunctionType) or _is_of_plain_kind(each):
            inner = ()
        else:
            inner = getattr(each, "__dict__", {}).values()
        for part in islice(inner, _PARTS):
            if id(part) not in seen and len(queue) < _PARTS:
                seen.add(id(part))
                queue.append(part)


@dataclass
class Draws:
    """Packages from whose random states the submitted cell draws: `seeded` by earlier cells, or `unseeded`."""

    seeded: tuple[str, ...] = ()
    unseeded: tuple[str, ...] = ()


def draws_of(history: History, start: int) -> Draws:
    """Return the packages from which the statements from `start` on draw random numbers before they seed them.

    Draws within a function body are included only if the function is called.
    """
    drawn: set[str] = set()
    own: set[str] = set()
    for time in range(start, len(history.executed)):
        drawn |= history.drawn[time] - own
        own |= {name for name, perhaps in history.binds[time].items() if not perhaps}
    seeded = {state for state in drawn if any(time < start for time in history.binders.get(state, ()))}
    packages = {state: package for package, state in STATES.items()}
    return Draws(*(tuple(sorted(packages[state] for state in each)) for each in (seeded, drawn - seeded)))


def notes_of(draws: Draws) -> Iterator[str]:
    """Yield a warning for each random state from which the cell draws and that no statement seeds."""
    for package in draws.unseeded:
        yield (
            f"this cell itself draws from {package}, which no cell is known to have seeded: the job draws by its own "
            f"--seed. If it was seeded in a way that is not seen, add the line {SEEDING[package]} above the draw"
        )


def _is_learnt(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module | torch.optim.Optimizer)


def _place(executed: Executed, time: int) -> tuple[int | None, int]:
    return executed.cell(time).number, executed.statements[time].start


class _NotSent(NamedTuple):
    """Value that cannot be sent, the cell and line that draw it without a seed, and why it cannot."""

    name: str
    cell: int | None
    line: int
    why: Refused

    @property
    def drawn(self) -> str:
        """Return the beginning of a message: `'x' depends on what cell [2] line 3 draws without a seed`."""
        return f"'{self.name}' depends on what cell [{self.cell}] line {self.line} draws without a seed"

    @property
    def note(self) -> str:
        """Return a note for users that the job draws a value of its own, since the notebook's value cannot be sent."""
        return f"{self.drawn}, and the job draws its own: {self.why}. Seed it there to have the notebook's in the job"

    def problem(self, value: object) -> Problem:
        """Return the problem that prevents the submission, with ways to solve it; `value` is the value not sent."""
        what = f"{self.drawn}, so that a job would have another, and it does not travel by itself: {self.why}"
        save, load = _lines(self.name, value)
        kept = f"{save} in a cell of its own and {self.name} = {load} in this one"
        keep = f"keep it: {kept}, or add --capture {self.name}"
        other = "make it in this cell" if isinstance(self.why, Unstorable) else keep
        way_out = f"Seed it there and run the cell again, or {other}. With --no-state-check the job draws its own."
        return Problem("unseeded", self.name, self.cell, f"{what}. {way_out}")


def _lines(name: str, value: object) -> tuple[str, str]:
    """Return two lines of Python as advice on how to save a value: one writes it to a file, the other reads it."""
    for library, kind, save, load in _FILES:
        module = sys.modules.get(library)
        if module is not None and isinstance(value, getattr(module, kind, ())):
            return save.format(name), load.format(name)
    return f'pickle.dump({name}, open("{name}.pkl", "wb"))', f'pickle.load(open("{name}.pkl", "rb"))'
