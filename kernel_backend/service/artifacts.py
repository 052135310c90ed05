"""What a person can ask of artifacts: which there are, and the bytes of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from kernel_backend.areas.base import Areas
from kernel_backend.model.artifacts import Artifact
from kernel_backend.model.people import Person
from kernel_backend.service.visible import visible
from kernel_backend.store.base import Store


class Opened(NamedTuple):
    """An artifact, how many bytes lie there now, and these in pieces."""

    artifact: Artifact
    size: int
    pieces: AsyncIterator[bytes]


class ArtifactVerbs:
    """The verbs. The store knows which artifacts there are, the area of their owner has their bytes."""

    def __init__(self, store: Store, areas: Areas) -> None:
        self._store, self._areas = store, areas

    async def listed(self, who: Person, number: int) -> list[Artifact]:
        """What the trials of an experiment have kept, by trial and name; raises NotFound."""
        await visible(self._store, who, number)
        return await asyncio.to_thread(self._store.artifacts, number)

    async def read(self, who: Person, number: int, trial: int, name: str) -> Opened:
        """One of them; raises NotFound."""
        experiment = await visible(self._store, who, number)
        artifact = await asyncio.to_thread(self._store.artifact, number, trial, name)
        area = self._areas.of(experiment.owner)
        contents = await asyncio.to_thread(area.artifact, number, trial, artifact.name)
        return Opened(artifact, contents.size, _passed(contents.pieces))


async def _passed(read: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (piece := await asyncio.to_thread(next, read, None)) is not None:
        yield piece
