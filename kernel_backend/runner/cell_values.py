"""Store the values that a notebook's cell has set at the end of its program, for the notebook (on rank 0)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any

from kernel_backend.artifacts.run import run
from kernel_backend.model.artifacts import INDEX, LAST, MOST_BYTES, RANDOM, VALUES, CellValues
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.determinism.random_states import RandomStates
from kernel_backend.snapshots.job_values import digest, write
from kernel_backend.snapshots.trainers import TrainedTrainer

_CODE = (type, FunctionType, ModuleType)  # what the notebook has by running the cell's definitions


class ValueWriter:
    """Writer of a cell's values: what the cell sets itself, and what it has changed of earlier cells' values."""

    def __init__(self, rank: RankContext, names: Collection[str], only: bool = False) -> None:
        """Set up the writer of the variables `names`; with `only`, what the cell changes of others is not written."""
        self._rank, self._names, self._only = rank, names, only
        config, snapshot = rank.config, rank.loaded.snapshot
        place = snapshot.locate(snapshot.roles_from) if snapshot is not None else None
        of_notebook = rank.loaded.definition.form == "plain" or (place is not None and place.cell is not None)
        self._writes = of_notebook and rank.ranks.rank == 0 and config.values != "off" and config.search is None
        self._most = config.values if isinstance(config.values, int) else MOST_BYTES
        self._before: dict[str, str] | None = None  # digests of earlier cells' values as the cell begins

    def begin(self, held: Mapping[str, Any]) -> None:
        """Take digests of the values that earlier cells have made, as the cell begins; do nothing after `restore`."""
        if not self._writes or self._only or self._before is not None:
            return
        found = {name: digest(value) for name, value in _values(held).items() if name not in self._names}
        self._before = {name: each for name, each in found.items() if each is not None}

    def state(self) -> dict[str, str] | None:
        """Return the digests that `begin` has taken, for a checkpoint; None before."""
        return self._before

    def restore(self, state: dict[str, str] | None) -> None:
        """Take over the digests of an earlier attempt, whose values a restart may not make again."""
        self._before = state

    def save(
        self, held: Mapping[str, Any], last: Any = None, missing: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Store the values that the cell has set or changed as artifacts of the trial, replacing those stored before.

        `held` are the program's variables at its end, `last` the value of the cell's last expression, and `missing` has
        why variables cannot be stored, by name. An error is told in a note: the training is complete without its
        values.
        """
        if not self._writes:
            return
        try:
            self._save(_values(held, self._names), {} if last is None else {LAST: last}, missing)
        except Exception as error:  # such as a full disk
            text = f"the cell's values were not stored for the notebook: {type(error).__name__}: {error}"
            self._rank.note(text, "warning")

    def _save(self, held: Mapping[str, Any], more: dict[str, Any], missing: Mapping[str, str]) -> None:
        before = {name: each for name, each in (self._before or {}).items() if name in held}
        unchanged = [name for name, each in before.items() if digest(held[name]) == each]
        wanted = [*self._names, *(name for name in before if name not in unchanged)]
        values = {name: held[name] for name in wanted if name in held} | more
        if self._rank.config.values == "rng":
            values[RANDOM] = RandomStates().state_dict()
        path = run.folder / VALUES
        with path.open("w+b") as file:
            written = write(values, file, self._most)
        facts = written._asdict() | {"missing": {**written.missing, **missing}}
        index = CellValues(**facts, unchanged=tuple(unchanged), slots=self._rank.ranks.size)
        run.artifact(VALUES, path)
        path.unlink()
        (run.folder / INDEX).write_text(index.model_dump_json())
        run.artifact(INDEX, run.folder / INDEX)


def save_trained(
    rank: RankContext, objects: Iterable[object], trainer: object = None, state: TrainedTrainer | None = None
) -> None:
    """Store those variables of a framework's cell that hold `objects` which the job has trained or filled.

    For variables that hold the `trainer` its `state` is stored: the notebook makes a Trainer of its own.
    """
    held, trained = vars(rank.loaded.module), [each for each in objects if each is not None]
    trainers = {name: state for name, each in held.items() if each is trainer and state is not None and name[:1] != "_"}
    names = [name for name, value in held.items() if any(value is each for each in trained)]
    ValueWriter(rank, [*names, *trainers], only=True).save({**held, **trainers})


def _values(held: Mapping[str, Any], names: Collection[str] = ()) -> dict[str, Any]:
    """Return a program's variables that hold values: classes and functions only if they are among `names`."""
    own = {name: each for name, each in held.items() if name[:2] != "__"}
    return {name: each for name, each in own.items() if name in names or not isinstance(each, _CODE)}
