"""Note the gangs of Unix users in the service's own folder: no agent is trusted to list them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.ids import AttemptId, parse_attempt
from kernel_backend.model.resources import LOCAL


class GangNotes:
    """A file for each gang that is not forgotten; its content is the pool, empty for the local one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, key: AttemptId) -> Path:
        """Return the path of a gang's note, which may not exist."""
        return self._folder / str(key)

    def add(self, key: AttemptId, pool: str) -> None:
        """Note a gang, before it is submitted."""
        self.path(key).write_text("" if pool == LOCAL else pool)

    def remove(self, key: AttemptId) -> None:
        """Remove the note of a gang whose end is recorded."""
        self.path(key).unlink(missing_ok=True)

    def of(self, pool: str) -> list[AttemptId]:
        """Return the noted gangs of a pool."""
        return [key for key, each in self._all() if each == pool]

    def by_pool(self) -> dict[str, list[AttemptId]]:
        """Return the noted gangs of pools other than the local one, by pool."""
        found: dict[str, list[AttemptId]] = {}
        for key, pool in self._all():
            if pool != LOCAL:
                found.setdefault(pool, []).append(key)
        return found

    def pool(self, key: AttemptId) -> str:
        """Return the pool of a gang; the local one if there is no note."""
        try:
            return self.path(key).read_text() or LOCAL
        except FileNotFoundError:
            return LOCAL  # logs of a gang that was forgotten are read alike for all pools

    def _all(self) -> Iterator[tuple[AttemptId, str]]:
        for path in sorted(self._folder.iterdir()):
            with contextlib.suppress(InvalidRequest, FileNotFoundError):  # of no gang, or removed just now
                yield parse_attempt(path.name), path.read_text() or LOCAL
