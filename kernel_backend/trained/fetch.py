"""Read a trained model's checkpoint and code: in a notebook from the service, in a job from its own files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, Protocol

from kernel_backend.client import Client
from kernel_backend.errors import CheckpointDamaged
from kernel_backend.model.snapshot import Snapshot
from kernel_backend.trained.own_classes import submitted_code

if TYPE_CHECKING:
    from kernel_backend.checkpoints.base import Manifest, Part


class TrainedFiles(Protocol):
    """Source of an experiment's code and of its checkpoints' parts."""

    number: int

    def pieces(self, manifest: Manifest, part: Part) -> Iterator[bytes | memoryview]:
        """Yield the bytes of a checkpoint's part."""

    def source(self) -> tuple[str, Snapshot]:
        """Return the training definition and the description of its snapshot."""

    def code(self) -> ModuleType:
        """Return the training definition as a module, executed once per process without its training."""


class OfService:
    """Code and checkpoints of an experiment, read from the service."""

    def __init__(self, client: Client, number: int) -> None:
        self._client, self.number = client, number

    def pieces(self, manifest: Manifest, part: Part) -> Iterator[bytes]:
        """Yield the bytes of a checkpoint's part."""
        return self._client.part(self.number, manifest.trial, manifest.id, part.name)

    def source(self) -> tuple[str, Snapshot]:
        """Return the training definition and the description of its snapshot."""
        return self._source

    @cached_property
    def _source(self) -> tuple[str, Snapshot]:
        return self._client.source(self.number)

    def code(self) -> ModuleType:
        """Return the training definition as a module, executed once per process without its training."""
        return submitted_code(self._client, self.number)


def fetch_part(files: TrainedFiles, manifest: Manifest, part: Part, into: BinaryIO) -> None:
    """Write a checkpoint's part into a file; raises CheckpointDamaged if its bytes do not match the manifest."""
    import xxhash

    digest, size = xxhash.xxh3_128(), 0
    for piece in files.pieces(manifest, part):
        digest.update(piece)
        size += len(piece)
        into.write(piece)
    if (size, digest.hexdigest()) != (part.size, part.digest):
        where = f"checkpoint {manifest.id} of {files.number}.{manifest.trial}"
        raise CheckpointDamaged(f"{where}: part {part.name} is not as it was written ({size} of {part.size} bytes)")
