"""Find values that were drawn without a seed, so that a job would compute others; small ones are sent with the job.

Large ones prevent the submission.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jupyter_ext.capture.executed import Executed
from jupyter_ext.capture.follow.libraries import STATES
from jupyter_ext.capture.history import History
from jupyter_ext.capture.problems import Problem
from jupyter_ext.capture.slice import Slice
from jupyter_ext.capture.values import Refused, Values
from kernel_backend.snapshots.random_states import SEEDING

LIMIT = 32 * 2**20  # bytes of each value
_TRAINS = re.compile(r"\.(fit|backward)\(")
_FILES = (
    ("numpy", "ndarray", 'np.save("{0}.npy", {0})', 'np.load("{0}.npy")'),
    ("torch", "Tensor", 'torch.save({0}, "{0}.pt")', 'torch.load("{0}.pt")'),
    ("pandas", "DataFrame", '{0}.to_pickle("{0}.pkl")', 'pd.read_pickle("{0}.pkl")'),
    ("pandas", "Series", '{0}.to_pickle("{0}.pkl")', 'pd.read_pickle("{0}.pkl")'),
)


@dataclass
class Unseeded:
    """Values drawn without a seed: those in `held` are sent with the submission, and each other one has a problem."""

    held: Values = field(default_factory=Values)
    problems: list[Problem] = field(default_factory=list)


def unseeded(executed: Executed, sliced: Slice, namespace: Mapping[str, object] | None) -> Unseeded:
    """Capture the notebook values that the submitted cell needs and that would differ if computed again.

    Initial weights of a torch module are drawn by the job's seed instead, unless a cell has trained the module.
    """
    found, history = Unseeded(), sliced.history
    doubtful = (history.by_chance | history.by_hash) & sliced.needed
    if namespace is None or not doubtful:
        return found
    for name in sliced.compared:
        makers = sliced.makers(name) & sliced.needed if name in namespace else set[int]()
        drawing, hashing = makers & history.by_chance, makers & history.by_hash
        if not (drawing or hashing):
            continue
        if _is_learnt(namespace[name]) and not any(_TRAINS.search(executed.text(time)) for time in makers):
            continue
        try:
            found.held.add(name, namespace, LIMIT)
        except Refused as refused:
            if drawing:  # the order of a set may be equal in the job, which compares the values
                found.problems.append(_refused(name, namespace[name], str(refused), executed, max(drawing)))
    return found


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


def _refused(name: str, value: object, why: str, executed: Executed, time: int) -> Problem:
    cell, line = executed.cell(time).number, executed.statements[time].start
    what = f"'{name}' depends on what cell [{cell}] line {line} draws without a seed, so that a job would have another"
    save, load = _lines(name, value)
    way_out = (
        f"Seed it there and run the cell again, or keep it: {save} in a cell of its own and {name} = {load} in this"
        f" one, or add --capture {name}. With --no-state-check the job draws its own."
    )
    return Problem("unseeded", name, cell, f"{what}, and it does not travel by itself: {why}. {way_out}")


def _lines(name: str, value: object) -> tuple[str, str]:
    """Return two lines of Python as advice on how to save a value: one writes it to a file, the other reads it."""
    for library, kind, save, load in _FILES:
        module = sys.modules.get(library)
        if module is not None and isinstance(value, getattr(module, kind, ())):
            return save.format(name), load.format(name)
    return f'pickle.dump({name}, open("{name}.pkl", "wb"))', f'pickle.load(open("{name}.pkl", "rb"))'
