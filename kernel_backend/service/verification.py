"""Cache the results of verifying checkpoints byte by byte; a result is valid until a file of the checkpoint changes."""

from __future__ import annotations

from collections import OrderedDict

from kernel_backend.checkpoints.base import Checkpoints, Manifest
from kernel_backend.checkpoints.verify import files_of
from kernel_backend.errors import CheckpointDamaged

REMEMBERED = 10_000  # checkpoints in the cache


class VerificationCache:
    """Cache of the results of verifying checkpoints, by storage location and checkpoint.

    A result is "" for an intact checkpoint, else a description of the damage.
    """

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()

    def known(self, place: Checkpoints, manifest: Manifest) -> str | None:
        """Return the cached result for a checkpoint; None if there is none, or if its files have changed since."""
        found = self._found.get((place.where, manifest.id))
        return found[1] if found and found[0] == files_of(manifest) else None

    def read(self, place: Checkpoints, manifest: Manifest) -> str:
        """Verify every byte of a checkpoint and cache the result; return a description of the damage, "" if intact."""
        files = files_of(manifest)  # read before the verification, so that a change during it invalidates the result
        try:
            place.verify(manifest)
            problem = ""
        except CheckpointDamaged as damage:
            problem = damage.message
        self._remember(place, manifest, files, problem)
        return problem

    def remember(self, place: Checkpoints, manifest: Manifest, problem: str) -> None:
        """Cache a result that another verification has found: `problem` describes the damage, "" if there is none."""
        self._remember(place, manifest, files_of(manifest), problem)

    def _remember(self, place: Checkpoints, manifest: Manifest, files: str, problem: str) -> None:
        self._found[place.where, manifest.id] = (files, problem)
        self._found.move_to_end((place.where, manifest.id))
        while len(self._found) > REMEMBERED:
            self._found.popitem(last=False)
