"""Read a checkpoint from the service, checking every byte against its digest."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from kernel_backend.client import Client
from kernel_backend.errors import CheckpointDamaged

if TYPE_CHECKING:
    from kernel_backend.checkpoints.base import Manifest, Part


def fetch_part(client: Client, number: int, manifest: Manifest, part: Part, into: BinaryIO) -> None:
    """Write a checkpoint's part into a file; raises CheckpointDamaged if its bytes do not match the manifest."""
    import xxhash

    digest, size = xxhash.xxh3_128(), 0
    for piece in client.part(number, manifest.trial, manifest.id, part.name):
        digest.update(piece)
        size += len(piece)
        into.write(piece)
    if (size, digest.hexdigest()) != (part.size, part.digest):
        where = f"checkpoint {manifest.id} of {number}.{manifest.trial}"
        raise CheckpointDamaged(f"{where}: part {part.name} is not as it was written ({size} of {part.size} bytes)")
