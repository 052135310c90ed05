"""List, read, verify, delete and pin checkpoints, and delete those that no retention rule retains."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import ParamSpec, TypeVar

from kernel_backend.checkpoints.base import Checkpoints, Manifest, dump
from kernel_backend.checkpoints.storage import CheckpointStorage
from kernel_backend.checkpoints.tar import TarMember, tar_pieces, tar_size
from kernel_backend.errors import CheckpointDamaged, Conflict, NotFound, PlaceUnavailable
from kernel_backend.fairness.owner_limit import OwnerLimit
from kernel_backend.model.checkpoints import (
    CheckpointSelector,
    GarbageReport,
    GarbageRequest,
    ReportsDecision,
    best_or_newest,
    choose,
)
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.views.overview import CheckpointInfo
from kernel_backend.service.access import changeable, visible
from kernel_backend.service.audit import audit_entry, keep_audit_entry
from kernel_backend.service.garbage import collect, reasons, registered_reasons, trial_checkpoints
from kernel_backend.service.retention import Retention
from kernel_backend.service.verification import VerificationCache
from kernel_backend.store.base import Store

ALL = 2**31 - 1  # no limit on the number of experiments
PIECE = 2**20  # bytes of a part that are read at once
FALL_BACK = "fall-back"  # reason to retain a checkpoint that a trial may still need
AWAITED = "awaited"  # reason to retain one that an evaluation has yet to judge

P = ParamSpec("P")
T = TypeVar("T")


class CheckpointVerbs:
    """Operations on checkpoints.

    Each operation reads the checkpoint storage, since the database does not have the list of checkpoints.
    """

    def __init__(self, store: Store, storage: CheckpointStorage, retention: Retention, whole_files: OwnerLimit) -> None:
        self._whole_files = whole_files
        self._store, self._storage, self._retention = store, storage, retention
        self._verified = VerificationCache()
        self.pinning = asyncio.Lock()  # a checkpoint that becomes a version of a model is not unpinned meanwhile
        # One request at a time verifies checkpoints of an owner, to leave the disks to other work.
        self._reading: dict[str, asyncio.Lock] = {}

    async def listed(self, who: Person, number: int) -> list[CheckpointInfo]:
        """Return the committed checkpoints of an experiment, each with the reasons to retain it.

        They are ordered by trial, and oldest first within a trial.
        """
        experiment = await visible(self._store, who, number)
        return await _asked(self._listed, experiment)

    async def at(self, who: Person, number: int, trial: int, step: int | None) -> str:
        """Return the id of a trial's checkpoint of a step, or for None of the best one.

        The best is that by the metric of its experiment, or the newest if none has it. Raises NotFound if the trial has
        no checkpoint, or none of that step.
        """
        experiment = await visible(self._store, who, number)
        return await _asked(self._at, experiment, trial, step)

    async def manifest(self, who: Person, number: int, trial: int, checkpoint: str) -> bytes:
        """Return a checkpoint's manifest (list of its files) as JSON; raises NotFound."""
        await visible(self._store, who, number)
        _, manifest = await _asked(self._find, number, trial, checkpoint)
        return dump(manifest)

    async def part(
        self, who: Person, number: int, trial: int, checkpoint: str, name: str, offset: int = 0
    ) -> tuple[int, AsyncIterator[bytes]]:
        """Verify one file (part) of a checkpoint; return the number of its bytes from `offset` on, and these bytes.

        Raises NotFound, and CheckpointDamaged if any byte of the part is damaged.
        """
        await visible(self._store, who, number)
        place, manifest = await _asked(self._find, number, trial, checkpoint)
        part = manifest.part(name)
        if part is None:
            there = ", ".join(part.name for part in manifest.parts)
            raise NotFound(f"checkpoint {checkpoint} of {number}.{trial} has no part {name}; it has {there}")
        try:
            async with self._whole_files.of(who.name):  # every byte is read before the first is sent
                stream = await _asked(place.stream, manifest, name, offset)
        except CheckpointDamaged as damage:
            self._verified.remember(place, manifest, damage.message)
            raise
        return max(0, part.size - offset), _pieces(stream)

    async def archive(self, who: Person, number: int, trial: int, checkpoint: str) -> tuple[int, AsyncIterator[bytes]]:
        """Return the size of a TAR archive with the files and the manifest of a checkpoint, and its bytes.

        The bytes are verified while they are read: they end early, with CheckpointDamaged, if one is damaged.
        """
        await visible(self._store, who, number)
        place, manifest = await _asked(self._find, number, trial, checkpoint)
        folder, about = f"checkpoint-{number}.{trial}-{checkpoint}", dump(manifest)
        members = [
            *(
                TarMember(f"{folder}/{part.name}.safetensors", part.size, place.pieces(manifest, part.name))
                for part in manifest.parts
            ),
            TarMember(f"{folder}/manifest.json", len(about), [about]),
        ]
        return tar_size(members), self._noted(place, manifest, _pieces(tar_pieces(members)))

    async def _noted(
        self, place: Checkpoints, manifest: Manifest, pieces: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        """Yield the pieces, and remember that the checkpoint is damaged if they say so."""
        try:
            async for piece in pieces:
                yield piece
        except CheckpointDamaged as damage:
            self._verified.remember(place, manifest, damage.message)
            raise

    async def verify(self, who: Person, number: int, trial: int, checkpoint: str) -> CheckpointInfo:
        """Verify every byte of a checkpoint, and return the checkpoint's description with the result.

        A damaged checkpoint stays where it is; only a training that tries to resume from it moves it into quarantine.
        """
        experiment = await visible(self._store, who, number)
        async with self._reading.setdefault(experiment.owner, asyncio.Lock()):
            place, manifest = await _asked(self._find, number, trial, checkpoint)
            await _asked(self._verified.read, place, manifest)
        return await _asked(self._info, experiment, trial, checkpoint)

    async def pin(self, who: Person, number: int, trial: int, checkpoint: str, pinned: bool) -> CheckpointInfo:
        """Pin a checkpoint, so that no rule deletes it, or unpin it; raises Conflict for one that is registered."""
        experiment = await changeable(self._store, who, number)
        place, _ = await _asked(self._find, number, trial, checkpoint)
        async with self.pinning:
            if not pinned:
                await _asked(self._check_registered, number, trial, checkpoint)
            await _asked(place.pin, checkpoint, pinned)
        await self._written(who, experiment, "pin" if pinned else "unpin", trial, checkpoint)
        return await _asked(self._info, experiment, trial, checkpoint)

    async def whole(self, experiment: Experiment, trial: int, checkpoint: str) -> None:
        """Verify every byte of a checkpoint, unless that was done before; raises NotFound and CheckpointDamaged."""
        async with self._reading.setdefault(experiment.owner, asyncio.Lock()):
            place, manifest = await _asked(self._find, experiment.number, trial, checkpoint)
            problem = self._verified.known(place, manifest)
            if problem is None:
                problem = await _asked(self._verified.read, place, manifest)
        if problem:
            raise CheckpointDamaged(f"checkpoint {checkpoint} of {experiment.number}.{trial} is damaged: {problem}")

    async def pinned(self, number: int, trial: int, checkpoint: str) -> Manifest:
        """Pin a checkpoint, and return its manifest; call it while `pinning` is held. Raises NotFound."""
        place, _ = await _asked(self._find, number, trial, checkpoint)
        await _asked(place.pin, checkpoint, True)
        return (await _asked(self._find, number, trial, checkpoint))[1]  # a running trial may have deleted it meanwhile

    async def delete(self, who: Person, number: int, trial: int, checkpoint: str) -> None:
        """Delete a checkpoint for good.

        Raises Conflict if it is pinned or a version of a model, or if its trial may still need it.
        """
        experiment = await changeable(self._store, who, number)
        await _asked(self._delete, experiment, trial, checkpoint)
        await self._written(who, experiment, "delete", trial, checkpoint)

    async def collect(self, who: Person, asked: GarbageRequest) -> GarbageReport:
        """Apply the retention rules to the experiment named in the request, or else to all experiments of the user."""
        if asked.experiment is not None:
            chosen = [await changeable(self._store, who, asked.experiment)]
        else:
            chosen = await _asked(self._store.experiments, who.name, None, None, ALL)
        done = [await _asked(self._collect, each, asked.dry_run) for each in chosen]
        for each, one in zip(chosen, done, strict=True):
            if (one.goes or one.logs or one.reports) and not asked.dry_run:
                removed = [f"{len(one.goes)} checkpoints", *["the logs"] * len(one.logs), *map(_thinned, one.reports)]
                what = " and ".join(removed)
                await keep_audit_entry(self._store, audit_entry(who, each, "gc", what))
        return GarbageReport(
            goes=tuple(each for one in done for each in one.goes),
            stays=tuple(each for one in done for each in one.stays),
            running=tuple(each for one in done for each in one.running),
            problems=tuple(each for one in done for each in one.problems),
            logs=tuple(each for one in done for each in one.logs),
            reports=tuple(each for one in done for each in one.reports),
        )

    async def _written(self, who: Person, experiment: Experiment, act: str, trial: int, checkpoint: str) -> None:
        about = f"checkpoint {experiment.number}.{trial}/{checkpoint}"
        await keep_audit_entry(self._store, audit_entry(who, experiment, act, on=about))

    def _listed(self, experiment: Experiment) -> list[CheckpointInfo]:
        found = trial_checkpoints(self._store, self._storage, experiment.number)
        why = reasons(experiment, found, self._damaged)
        return [
            self._described(checkpoints.place, manifest, why[checkpoints.trial.index, manifest.id])
            for checkpoints in found
            for manifest in checkpoints.manifests
        ]

    def _described(self, place: Checkpoints, manifest: Manifest, kept: tuple[str, ...]) -> CheckpointInfo:
        problem = self._verified.known(place, manifest)
        found: dict[str, object] = {
            "metrics": manifest.validation,
            "verified": "not read" if problem is None else "damaged" if problem else "yes",
            "problem": problem or "",
            "kept": kept,
            "pinned": manifest.pinned,
        }
        return manifest.info.model_copy(update=found)

    def _info(self, experiment: Experiment, trial: int, checkpoint: str) -> CheckpointInfo:
        for each in self._listed(experiment):
            if (each.trial, each.id) == (trial, checkpoint):
                return each
        raise _missing(experiment.number, trial, checkpoint)

    def _at(self, experiment: Experiment, trial: int, step: int | None) -> str:
        self._store.trial(experiment.number, trial)  # raises NotFound
        committed = self._storage.open(experiment.number, trial).committed()
        found = [manifest.info.model_copy(update={"metrics": manifest.validation}) for manifest in committed]
        metric = experiment.config.metric
        selector = best_or_newest(found, metric) if step is None else CheckpointSelector(step=step)
        return choose(found, metric, selector).id

    def _find(self, number: int, trial: int, checkpoint: str) -> tuple[Checkpoints, Manifest]:
        self._store.trial(number, trial)  # raises NotFound
        place = self._storage.open(number, trial)
        for manifest in place.committed():
            if manifest.id == checkpoint:
                return place, manifest
        raise _missing(number, trial, checkpoint)

    def _delete(self, experiment: Experiment, trial: int, checkpoint: str) -> None:
        place, _ = self._find(experiment.number, trial, checkpoint)
        info = self._info(experiment, trial, checkpoint)
        what = f"checkpoint {checkpoint} of {experiment.number}.{trial}"
        again = f"{experiment.number}.{trial} --step {info.step}"
        self._check_registered(experiment.number, trial, checkpoint)
        if info.pinned:
            raise Conflict(f"{what} is pinned: daylight checkpoint unpin {again}")
        if AWAITED in info.kept:
            raise Conflict(f"{what} awaits an evaluation that follows its training: stop that first")
        if FALL_BACK in info.kept or self._resumed(experiment.number, trial, checkpoint):
            raise Conflict(
                f"{what} is one of those that its trial goes on from, should it run again: "
                f"end it first with daylight stop {experiment.number}"
            )
        place.discard(checkpoint)

    def _check_registered(self, number: int, trial: int, checkpoint: str) -> None:
        """Raise Conflict if the checkpoint is a version of a model."""
        if names := registered_reasons(self._store, number).get((trial, checkpoint)):
            raise Conflict(
                f"checkpoint {checkpoint} of {number}.{trial} is {', '.join(names)}: "
                "daylight model NAME --remove VERSION takes a version out of its model"
            )

    def _resumed(self, number: int, trial: int, checkpoint: str) -> bool:
        """Return whether an unfinished attempt resumed from this checkpoint, so that it may still be reading it."""
        attempts = [each for each in self._store.open_attempts() if (each.experiment, each.trial) == (number, trial)]
        return any(each.resume_from == checkpoint for each in attempts)

    def _collect(self, experiment: Experiment, dry_run: bool) -> GarbageReport:
        now = time.time()
        found = collect(self._store, self._storage, experiment, now, dry_run=dry_run, damaged=self._damaged)
        logs, reports = self._retention.collect(experiment, now, dry_run=dry_run)
        removed = {"logs": (logs,) if logs else (), "reports": (reports,) if reports else ()}
        return found.model_copy(update=removed)

    def _damaged(self, place: Checkpoints, manifest: Manifest) -> bool:
        return bool(self._verified.known(place, manifest))


async def _pieces(stream: Iterator[bytes | memoryview]) -> AsyncIterator[bytes]:
    while (read := await _asked(next, stream, None)) is not None:
        for begin in range(0, len(read), PIECE):
            yield bytes(read[begin : begin + PIECE])


async def _asked(ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that reads checkpoint storage in a thread, and return its result; `args` are its arguments.

    An OSError is raised as PlaceUnavailable.
    """
    try:
        return await asyncio.to_thread(ask, *args, **kwargs)
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        raise PlaceUnavailable(
            f"the checkpoints cannot be reached just now: {error.strerror or error}{place}"
        ) from error


def _thinned(decision: ReportsDecision) -> str:
    return f"{decision.removed} training reports"


def _missing(number: int, trial: int, checkpoint: str) -> NotFound:
    return NotFound(f"trial {number}.{trial} has no checkpoint {checkpoint}: daylight checkpoints {number} lists them")
