"""Delete experiments: a deletion can be undone for a day, then the files are removed from disk (purged)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kernel_backend.checkpoints.base import Checkpoints, Manifest, bytes_stored
from kernel_backend.checkpoints.verify import followers_among
from kernel_backend.errors import Conflict, DaylightError
from kernel_backend.model import disk
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.disk import DiskUsage
from kernel_backend.model.experiment import Experiment
from kernel_backend.model.trial import Trial, parse_beginning
from kernel_backend.service import warm_start
from kernel_backend.service.access import changeable, visible
from kernel_backend.service.audit import audit_entry
from kernel_backend.service.context import Context
from kernel_backend.service.garbage import registered_reasons

HOUSEKEEPING_S = 600.0  # between searches for experiments to purge

_log = logging.getLogger(__name__)
_Rule = Callable[[Experiment, float], dict[str, Any]]


class Needed(NamedTuple):
    """Data of a deleted experiment that is not removed from disk yet, because other experiments still need it.

    `checkpoints` maps a checkpoint (such as `1/500-2`) to the experiments that start from it; `results` has the numbers
    of the searches that use the experiment's results as prior data. `registered` maps a checkpoint to the reasons why
    it stays as a version of models.
    """

    checkpoints: dict[str, list[int]]
    results: list[int]
    registered: dict[str, tuple[str, ...]]

    @property
    def names(self) -> set[str]:
        """Return the checkpoints that stay on disk, such as `1/500-2`."""
        return self.checkpoints.keys() | self.registered.keys()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why data is retained: one sentence for each checkpoint, and one for the results if they are needed."""
        begun = [
            f"checkpoint {name} stays: {_named(numbers)} begins from it" for name, numbers in self.checkpoints.items()
        ]
        learned = [f"its results stay: {_named(self.results)} searches with them"] if self.results else []
        registered = [f"checkpoint {name} stays: {', '.join(why)}" for name, why in self.registered.items()]
        return (*registered, *begun, *learned)


class Deletion:
    """Operations that delete and restore experiments, report their disk usage, and purge them from disk."""

    def __init__(self, context: Context) -> None:
        self._store, self._storage, self._workspaces = context.store, context.checkpoint_storage, context.workspaces
        self._archive, self._bus = context.archive, context.bus

    async def usage(self, who: Person, number: int) -> DiskUsage:
        """Return the bytes that an experiment occupies on disk, by kind of file.

        Raises NotFound, and PlaceUnavailable if the files cannot be read.
        """
        return await asyncio.to_thread(self._usage, await visible(self._store, who, number))

    async def delete(self, who: Person, number: int) -> None:
        """Mark an experiment as deleted.

        Raises Conflict if the experiment has not ended, or if one of its checkpoints is pinned or a version of a model.
        Checkpoints from which other experiments start do not prevent that: they stay on disk.
        """
        experiment = await changeable(self._store, who, number, deleted=True)
        disk.delete(experiment, time.time())  # raises Conflict before any storage is read
        await asyncio.to_thread(self._check_pins, experiment)
        await self._change(who, number, "delete", disk.delete)

    async def undelete(self, who: Person, number: int) -> None:
        """Restore a deleted experiment; raises Conflict if it was deleted more than a day ago."""
        await changeable(self._store, who, number, deleted=True)
        await self._change(who, number, "undelete", disk.undelete)

    async def run(self) -> None:
        """Every ten minutes, remove what was deleted, or sent and never submitted, a day ago, until cancelled."""
        while True:
            try:
                await self.purge(time.time())
            except DaylightError as error:
                _log.warning("deleted experiments are freed later: %s", error)
            await asyncio.sleep(HOUSEKEEPING_S)

    async def purge(self, now: float) -> None:
        """Remove what nobody has needed for a day before `now` (seconds since the epoch).

        These are the files of deleted experiments, and snapshots that were sent and never submitted.
        """
        await asyncio.to_thread(self._remove_uploads, now)
        for experiment in await asyncio.to_thread(self._store.deleted_experiments):
            if disk.may_purge(experiment, now):
                try:
                    await asyncio.to_thread(self._purge, experiment, now)
                except (DaylightError, OSError) as error:  # such as an unmounted disk: the next call tries again
                    _log.warning("experiment #%d could not be freed: %s", experiment.number, error)
                self._bus.notify()

    def _remove_uploads(self, now: float) -> None:
        for each in self._archive.uploads():
            if not self._store.snapshot_users(each.id, 0):
                self._archive.remove(each.id, before=now - disk.UNDO_S)

    async def _change(self, who: Person, number: int, action: str, rule: _Rule) -> None:
        def change(before: Experiment) -> tuple[dict[str, Any], AuditEntry | None]:
            changes = rule(before, time.time())
            return changes, audit_entry(who, before, action) if changes else None

        await asyncio.to_thread(self._store.update_experiment, number, time.time(), change)
        self._bus.notify()

    def _check_pins(self, experiment: Experiment) -> None:
        """Raise Conflict if a checkpoint of the experiment is pinned or registered.

        Checkpoints from which other experiments start are not considered, since a deletion leaves them on disk.
        """
        for version in self._store.registered(experiment.number):
            raise Conflict(
                f"experiment #{experiment.number} is registered as {version.title}: "
                f"daylight model {version.title.replace(' ', ' --remove ')} first"
            )
        needed = self._needed(experiment.number).checkpoints
        for trial, _, manifest in self._checkpoints(experiment):
            if manifest.pinned and _name(trial, manifest) not in needed:
                which = f"{trial.id} --step {manifest.step}"
                raise Conflict(
                    f"checkpoint {trial.id}/{manifest.id} is pinned: daylight checkpoint unpin {which} first"
                )

    def _usage(self, experiment: Experiment) -> DiskUsage:
        number, needed = experiment.number, self._needed(experiment.number)
        manifests = {_name(trial, manifest): manifest for trial, _, manifest in self._checkpoints(experiment)}
        aside = sum(each.bytes for _, place in self._storages(experiment) for each in place.aside())
        shared = self._store.snapshot_users(experiment.snapshot, number)
        found = {
            "checkpoints": bytes_stored(manifests.values(), self._storage.linked) + aside,
            **self._workspaces.of(experiment.owner).usage(number),
        }
        found["snapshots"] = self._archive.bytes(experiment.snapshot)
        held = [manifests[name] for name in sorted(needed.names) if name in manifests]
        kept = bytes_stored(held, self._storage.linked)
        stays = kept + (found["snapshots"] if shared else 0)
        whose = [f"its snapshot stays: {_named(shared)} has the same"] if shared else []
        return DiskUsage(
            experiment=number,
            name=experiment.name,
            owner=experiment.owner,
            bytes={kind: size for kind, size in found.items() if size},
            stays=stays,
            needed=(*needed.reasons, *whose),
        )

    def _purge(self, experiment: Experiment, now: float) -> None:
        number, needed = experiment.number, self._needed(experiment.number)
        for _, place in self._storages(experiment):
            for evaluation in followers_among(place.names()):
                place.follow(evaluation, False)
        for trial, place, manifest in self._checkpoints(experiment):
            if _name(trial, manifest) not in needed.names:
                if manifest.pinned:  # as long as another experiment has needed it
                    place.pin(manifest.id, False)
                place.discard(manifest.id)
        for trial, place in self._storages(experiment):
            for each in place.aside():
                place.discard(each.name)
            place.sweep(trial.attempt + 1)  # the trial has ended: none of its attempts can still commit
            place.clear()
        self._workspaces.of(experiment.owner).remove(number)
        if not self._store.snapshot_users(experiment.snapshot, number):
            self._archive.remove(experiment.snapshot, before=now - disk.UNDO_S)
        if not needed.names and not needed.results:
            self._store.purge(number, now)
            _log.info("experiment #%d is freed", number)

    def _needed(self, number: int) -> Needed:
        """Return the checkpoints and results of an experiment that are registered or that other experiments need."""
        checkpoints: dict[str, list[int]] = {}
        followers: dict[int, bool] = {}
        for source, other in self._store.warm_start_sources(number):
            if other not in followers:
                followers[other] = self._store.experiment(other).config.follows
            if followers[other]:
                continue  # its trials have their copies, and need none again
            origin = parse_beginning(source)
            checkpoints.setdefault(f"{origin.trial.partition('.')[2]}/{origin.checkpoint}", []).append(other)
        searches = self._store.warm_started()
        results = [each.number for each in searches if number in warm_start.named(each.config.search)]
        why = registered_reasons(self._store, number)
        registered = {f"{trial}/{checkpoint}": reasons for (trial, checkpoint), reasons in why.items()}
        return Needed(checkpoints, [other for other in results if other != number], registered)

    def _checkpoints(self, experiment: Experiment) -> Iterator[tuple[Trial, Checkpoints, Manifest]]:
        for trial, place in self._storages(experiment):
            for manifest in place.committed():
                yield trial, place, manifest

    def _storages(self, experiment: Experiment) -> Iterator[tuple[Trial, Checkpoints]]:
        for trial in self._store.trials(experiment.number):
            if trial.attempt or trial.begins_from:  # other trials have no checkpoints
                yield trial, self._storage.open(experiment.number, trial.index)


def _name(trial: Trial, manifest: Manifest) -> str:
    return f"{trial.index}/{manifest.id}"


def _named(numbers: list[int]) -> str:
    return ", ".join(f"#{number}" for number in dict.fromkeys(numbers))
