"""Compare experiments: two of them, or each with an earlier one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from kernel_backend.checkpoints.base import Checkpoints, Manifest
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.confined import Confined
from kernel_backend.definition.code import is_code
from kernel_backend.definition.script.parts import compared
from kernel_backend.differences.diff import diff
from kernel_backend.differences.side import Side
from kernel_backend.differences.tensors import first_difference
from kernel_backend.errors import DaylightError, NotFound, PlaceUnavailable
from kernel_backend.fairness.owner_limit import OwnerLimit
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.diff import Diff, Difference, HistoryEntry
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.facts import known
from kernel_backend.model.snapshot import CAPTURED, DATA, Snapshot
from kernel_backend.model.trial import BEFORE
from kernel_backend.service.access import sees, visible
from kernel_backend.service.parsing import causes_of, unread
from kernel_backend.snapshots.archive import UNREADABLE, Archive
from kernel_backend.store.base import Store

REMEMBERED = 16  # snapshots in the cache: an archive never changes


class CompareVerbs:
    """Read-only operations that compare experiments."""

    def __init__(
        self, store: Store, archive: Archive, storage: CheckpointStorage, confined: Confined, whole_files: OwnerLimit
    ) -> None:
        self._whole_files = whole_files
        self._store, self._archive, self._storage, self._confined = store, archive, storage, confined
        self._submitted = lru_cache(REMEMBERED)(self._read)

    async def diff(self, who: Person, a: int, b: int) -> Diff:
        """Return the differences between two experiments that the user may see; raises NotFound."""
        before, after = await visible(self._store, who, a), await visible(self._store, who, b)
        async with self._whole_files.of(who.name):
            old, new = await asyncio.to_thread(lambda: (self._side(before), self._side(after)))
            found = await self._confined.call(who.name, diff, old, new)
            return await asyncio.to_thread(self._with_tensor, found, old, new)

    async def history(self, who: Person, search: str | None, limit: int) -> list[HistoryEntry]:
        """Return the user's experiments, newest first, each with its differences from the previous one.

        A rerun is compared with the experiment that it repeats.
        """
        shown = await asyncio.to_thread(self._store.experiments, who.name, None, search, limit)
        begun = await asyncio.to_thread(lambda: [self._entry(who, each) for each in shown])
        found = await self._confined.call(who.name, causes_of, [sides for _, sides in begun])
        return [
            entry if entry.differences else entry.model_copy(update={"differences": each})
            for (entry, _), each in zip(begun, found, strict=True)
        ]

    def _with_tensor(self, found: Diff, a: Side, b: Side) -> Diff:
        """Return a diff completed by the name of the first tensor that differs between two experiments' checkpoints.

        The diff is unchanged if the results are equal, or if there are no checkpoints of the same step to compare.
        """
        parted = found.results.parted_at
        if parted is None:
            return found
        later = [step for step in sorted(a.checkpoints.keys() & b.checkpoints.keys()) if step >= parted]
        where = self._first_difference(a.experiment.number, b.experiment.number, later[0]) if later else ""
        text = "; ".join(filter(None, [found.results.text, where]))
        return found.model_copy(update={"results": found.results.model_copy(update={"text": text})})

    def _entry(self, who: Person, experiment: Experiment) -> tuple[HistoryEntry, list[Side]]:
        """Return an experiment's entry in the history, and the data from which the caller computes its differences.

        The data are those of the previous experiment and of this one; for a rerun, the experiment that it repeats
        counts as the previous one. There are no data if there is no previous experiment, or if a snapshot cannot be
        read. In the second case the entry's differences say so; otherwise they are empty.
        """
        origin = experiment.rerun_of
        earlier = self._store.experiments_before(experiment) if origin is None else [self._store.experiment(origin)]
        before = next(iter(earlier), None)
        if before is not None and not sees(who, before):  # the user has left that experiment's group
            before = None
        overview = self._store.overview(experiment.number)
        sides, problems = self._sides(before, experiment)
        entry = HistoryEntry(
            number=experiment.number,
            name=experiment.name,
            state=overview.state,
            created_at=experiment.created_at,
            before=before.number if before else None,
            differences=problems,
            metrics=overview.front.newest[1] if overview.front else {},
        )
        return entry, sides

    def _sides(self, before: Experiment | None, after: Experiment) -> tuple[list[Side], tuple[Difference, ...]]:
        """Load the snapshots and records of two experiments for a comparison.

        Return ([before, after], ()), or [] and a difference that says which snapshot cannot be read. If `before` is
        None, nothing is loaded.
        """
        found: list[Side] = []
        for each in (before, after):
            if before is None or each is None:
                continue
            try:
                found.append(self._side(each, results=False))
            except UNREADABLE as error:
                return [], (unread(f"#{each.number}", error),)
        return found, ()

    def _side(self, experiment: Experiment, *, results: bool = True) -> Side:
        snapshot, files = self._submitted(experiment.snapshot)
        side = Side(experiment, snapshot, files, known(self._store.facts(experiment.number, 1)))
        if not results:
            return side
        trial = self._store.trial(experiment.number, 1)
        return replace(
            side,
            reports=self._store.reports(experiment.number, 1),
            metrics=trial.newest[1],
            checkpoints={each.step: _parts(each) for _, each in self._committed(experiment.number)},
            failure=trial.failure.message if trial.failure else "",
        )

    def _read(self, id: str) -> tuple[Snapshot, Mapping[str, bytes]]:
        snapshot = self._archive.snapshot(id)
        files = self._archive.files(id, lambda name: _is_read(name) and not name.startswith(f"{CAPTURED}/"))
        return snapshot, files.beside({each.file: each.digest.encode() for each in snapshot.captured})

    def _committed(self, number: int) -> Iterator[tuple[Checkpoints, Manifest]]:
        try:
            place = self._storage.open(number, 1)
            # Without checkpoints copied from another experiment: they would be compared with themselves.
            yield from ((place, manifest) for manifest in place.committed() if manifest.attempt != BEFORE)
        except (OSError, PlaceUnavailable):  # storage is unavailable: report the other differences
            return

    def _first_difference(self, a: int, b: int, step: int) -> str:
        """Return a text that names the first tensor that differs between checkpoints of experiments `a` and `b`.

        Both checkpoints are of the step `step`. "" if none differs, or if checkpoints cannot be read. Example: `the
        first tensor that differs after step 8: 0.weight of model`.
        """
        try:
            (before, old), (after, new) = self._of_step(a, step), self._of_step(b, step)
            for part in (each for each in old.parts if each.name in _parts(old)):
                other = new.part(part.name)
                if other is not None and other.digest != part.digest:
                    name = first_difference(before.stream(old, part.name), after.stream(new, part.name))
                    return f"the first tensor that differs after step {step}: {name} of {part.name}" if name else ""
        except (OSError, DaylightError, ValueError, TypeError, KeyError, RecursionError):  # the user wrote these files
            return ""
        return ""

    def _of_step(self, number: int, step: int) -> tuple[Checkpoints, Manifest]:
        for place, manifest in self._committed(number):
            if manifest.step == step:
                return place, manifest
        raise NotFound(f"experiment #{number} has no checkpoint of step {step}")


def _is_read(name: str) -> bool:
    return is_code(name) or name.startswith(f"{DATA}/")


def _parts(manifest: Manifest) -> Mapping[str, str]:
    return compared(manifest.state, {part.name: part.digest for part in manifest.parts})
