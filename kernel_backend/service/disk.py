"""Measure disk usage by user and by experiment; files that belong to no single experiment are listed separately."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kernel_backend.errors import DaylightError, Forbidden
from kernel_backend.home import DATABASE
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.disk import DiskReport, DiskUsage, UserDisk, WorkspaceUsage, nearly_full
from kernel_backend.model.experiment import Experiment
from kernel_backend.service.context import Context
from kernel_backend.workspaces.base import Workspace

ALL = 2**31 - 1  # no limit on the number of experiments listed


class DiskMeter:
    """Meter of the disk usage of users and experiments; it caches nothing, so each call reads the file system."""

    def __init__(self, context: Context) -> None:
        self._store, self._workspaces = context.store, context.workspaces
        self._archive, self._home = context.archive, context.home

    async def report(self, who: Person, everyone: bool) -> DiskReport:
        """Return the disk usage of the user's files, or with `everyone` of all users' files.

        Raises Forbidden for `everyone` unless the user is an admin.
        """
        if everyone and not who.admin:
            raise Forbidden("only admins see the disk usage of other users: daylight du shows yours")
        return await asyncio.to_thread(self._report, None if everyone else who.name, who.admin)

    async def used(self, owner: str) -> Mapping[str, int]:
        """Return the bytes that a user's experiments and snapshots occupy on disk, by group.

        Deleted experiments count until they are removed from disk. Snapshots that no experiment uses yet count under
        "". Raises DaylightError or OSError if the user's files cannot be read.
        """
        return await asyncio.to_thread(self._used, owner)

    def _used(self, owner: str) -> Mapping[str, int]:
        deleted = (each for each in self._store.deleted_experiments() if each.owner == owner)
        experiments = [*self._store.experiments(owner, limit=ALL), *deleted]
        groups = {each.number: each.group for each in experiments}
        found = Counter({"": self._uploaded(owner)})
        for number, size in self._charged(experiments).items():
            found[groups[number]] += size
        for number, sizes in self._workspaces.of(owner).disk().experiments.items():
            if number in groups:
                found[groups[number]] += sum(sizes.values())
        return found

    def _uploaded(self, owner: str | None) -> int:
        """Return the bytes of the snapshots that no experiment uses yet, of a user or (None) of all."""
        return sum(each.bytes for each in self._archive.uploads() if owner in (None, each.owner))

    def _charged(self, experiments: Sequence[Experiment]) -> Mapping[int, int]:
        """Return the sizes of snapshots by experiment: of its user's experiments with one, the first is charged."""
        first: dict[tuple[str, str], int] = {}
        for each in sorted(experiments, key=lambda each: each.number):
            if each.purged_at is None:
                first.setdefault((each.owner, each.snapshot), each.number)
        return {number: self._archive.bytes(id) for (_, id), number in first.items()}

    def _report(self, owner: str | None, admin: bool) -> DiskReport:
        deleted = [each for each in self._store.deleted_experiments() if owner in (None, each.owner)]
        experiments = [*self._store.experiments(owner, limit=ALL), *deleted]
        owners = {each.owner for each in experiments} | ({owner} if owner else set())
        warnings: list[str] = []
        measured = self._measured(owners, warnings)
        snapshots = self._charged(experiments)
        usages = sorted(_usages(experiments, measured, snapshots), key=lambda each: (-each.total, each.experiment))
        workspaces = list({id(each): each for each in measured.values()}.values())
        fullest = min(workspaces, key=lambda each: each.free, default=None)
        if fullest is not None and (warning := nearly_full(fullest.free, fullest.size)):
            warnings.append(warning)
        shared = {
            "environments": sum(each.environments for each in workspaces),
            "uploads": self._uploaded(owner),
        }
        if admin:
            shared["database"] = self._database()
        if owner is None:
            shared["unknown"] = _unknown(workspaces, {each.number for each in experiments})
        return DiskReport(
            users=tuple(sorted(_totals(usages), key=lambda each: (-each.total, each.name))),
            experiments=tuple(usages),
            shared={kind: size for kind, size in shared.items() if size},
            free=None if fullest is None else fullest.free,
            size=None if fullest is None else fullest.size,
            warnings=tuple(warnings),
        )

    def _measured(self, owners: set[str], warnings: list[str]) -> Mapping[str, WorkspaceUsage]:
        """Return the disk usage of each owner's workspace; owners who share one workspace get the same measurement.

        If a workspace cannot be read, its owner is left out, and a sentence that says so is appended to `warnings`.
        """
        done: dict[Workspace, WorkspaceUsage] = {}
        found = {}
        for owner in sorted(owners):
            workspace = self._workspaces.of(owner)
            try:
                if workspace not in done:
                    done[workspace] = workspace.disk()
                found[owner] = done[workspace]
            except (DaylightError, OSError) as error:
                warnings.append(f"the disk of {owner} could not be measured: {error}")
        return found

    def _database(self) -> int:
        return sum(each.stat().st_size for each in self._home.glob(f"{DATABASE}*"))


def _usages(
    experiments: Sequence[Experiment], measured: Mapping[str, WorkspaceUsage], snapshots: Mapping[int, int]
) -> Iterator[DiskUsage]:
    for each in experiments:
        found = measured[each.owner].experiments.get(each.number, {}) if each.owner in measured else {}
        kinds = {**found, "snapshots": snapshots.get(each.number, 0)}
        sizes = {kind: size for kind, size in kinds.items() if size}
        yield DiskUsage(experiment=each.number, name=each.name, owner=each.owner, bytes=sizes)


def _totals(usages: Sequence[DiskUsage]) -> Iterator[UserDisk]:
    totals: dict[str, Counter[str]] = {}
    for each in usages:
        totals.setdefault(each.owner, Counter()).update(each.bytes)
    for name, sizes in totals.items():
        yield UserDisk(name=name, bytes=dict(sizes))


def _unknown(workspaces: Sequence[WorkspaceUsage], known: set[int]) -> int:
    """Return the bytes in folders of experiments whose numbers are not in `known`, the experiments in the database."""
    rest = (sizes for each in workspaces for number, sizes in each.experiments.items() if number not in known)
    return sum(sum(sizes.values()) for sizes in rest)
