"""List artifacts and read their bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import NamedTuple

from kernel_backend.checkpoints.streams import Digesting
from kernel_backend.errors import NotFound
from kernel_backend.fairness.owner_limit import OwnerLimit
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.cluster.people import Person
from kernel_backend.model.states import HOLDING_SLOTS
from kernel_backend.service.access import visible
from kernel_backend.store.base import Store
from kernel_backend.workspaces.base import Contents, Workspace, Workspaces


class Opened(NamedTuple):
    """Artifact that is open for reading: its record, its size in bytes, and an iterator over its bytes."""

    artifact: Artifact
    size: int
    pieces: AsyncIterator[bytes]


class ArtifactVerbs:
    """Operations on artifacts, whose records are in the store and whose files are in the owner's workspace."""

    def __init__(self, store: Store, workspaces: Workspaces, whole_files: OwnerLimit) -> None:
        self._store, self._workspaces, self._whole_files = store, workspaces, whole_files

    async def listed(self, who: Person, number: int) -> list[Artifact]:
        """Return the artifacts of all trials of an experiment, by trial and name; raises NotFound."""
        await visible(self._store, who, number)
        return await asyncio.to_thread(self._store.artifacts, number)

    async def read(self, who: Person, number: int, trial: int, name: str) -> Opened:
        """Return a trial's artifact, opened for reading.

        Raises NotFound, also if the size or digest of the file differs from the artifact's record.
        """
        experiment = await visible(self._store, who, number)
        artifact = await asyncio.to_thread(self._store.artifact, number, trial, name)
        workspace = self._workspaces.of(experiment.owner)
        async with self._whole_files.of(who.name):  # every byte is read before the first is sent
            contents = await asyncio.to_thread(self._contents, workspace, artifact, number)
        return Opened(artifact, contents.size, _passed(contents.pieces))

    def _contents(self, workspace: Workspace, artifact: Artifact, number: int) -> Contents:
        """Return the bytes of an artifact's file; raises NotFound if its size or digest differs from the record.

        They differ if a restored database has the record of an earlier file with the same name. Artifacts of running
        trials are not checked.
        """
        read = partial(workspace.artifact, number, artifact.trial, artifact.name)
        if self._store.trial(number, artifact.trial).state in HOLDING_SLOTS:
            return read()  # it may just have been replaced, before the report of its new digest
        seen = Digesting()
        for piece in read().pieces:
            seen.take(piece)
        if (seen.size, seen.digest) != (artifact.size, artifact.digest):
            raise NotFound(
                f"artifact {artifact.name!r} of {number}.{artifact.trial} is not the one that was kept: another file "
                f"has its place ({seen.size} bytes, and {artifact.size} were kept)"
            )
        return read()


async def _passed(read: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (piece := await asyncio.to_thread(next, read, None)) is not None:
        yield piece
