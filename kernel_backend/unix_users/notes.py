"""Record the gangs of Unix users in files of the service's own folder, as no agent is trusted to list its gangs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.ids import AttemptId, parse_attempt
from kernel_backend.model.resources import LOCAL


class GangNotes:
    """Folder with a file (the note) for each gang that was submitted and not forgotten.

    The content of a note is the name of the gang's pool, "" for the local pool.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, key: AttemptId) -> Path:
        """Return the path of a gang's note, which may not exist."""
        return self._folder / str(key)

    def add(self, key: AttemptId, pool: str) -> None:
        """Write the note of a gang; this must be called before the gang is submitted."""
        self.path(key).write_text("" if pool == LOCAL else pool)

    def remove(self, key: AttemptId) -> None:
        """Delete the note of a gang whose end is recorded."""
        self.path(key).unlink(missing_ok=True)

    def of(self, pool: str) -> list[AttemptId]:
        """Return the gangs of a pool that have notes."""
        return [key for key, each in self._all() if each == pool]

    def by_pool(self) -> dict[str, list[AttemptId]]:
        """Return the gangs that have notes, by name of their pool; the local pool is left out."""
        found: dict[str, list[AttemptId]] = {}
        for key, pool in self._all():
            if pool != LOCAL:
                found.setdefault(pool, []).append(key)
        return found

    def pool(self, key: AttemptId) -> str:
        """Return the name of a gang's pool; that of the local pool if the gang has no note."""
        try:
            return self.path(key).read_text() or LOCAL
        except FileNotFoundError:
            return LOCAL  # logs of a gang that was forgotten are read alike for all pools

    def _all(self) -> Iterator[tuple[AttemptId, str]]:
        for path in sorted(self._folder.iterdir()):
            with contextlib.suppress(InvalidRequest, FileNotFoundError):  # of no gang, or removed just now
                yield parse_attempt(path.name), path.read_text() or LOCAL
