"""Find the gangs that an earlier service has left in pools, by the marks of gangs that are not forgotten."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Protocol

from kernel_backend.errors import InvalidRequest
from kernel_backend.home import attempt_folder
from kernel_backend.model.ids import AttemptId, parse_attempt
from kernel_backend.model.resources import LOCAL

MARK = "listed"  # file in the folder of each gang that an engine lists; its content is the pool, empty for local


class Marks(Protocol):
    """Marks of the gangs that a service has submitted, which survive it."""

    def by_pool(self) -> dict[str, list[AttemptId]]:
        """Return the marked gangs of pools other than the local one, by pool."""

    def pool(self, key: AttemptId) -> str:
        """Return the pool of a gang; the local one if this service has not written it down."""


class FolderMarks:
    """Marks in the attempts' folders of a home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def by_pool(self) -> dict[str, list[AttemptId]]:
        """Return the marked gangs of pools other than the local one, by pool."""
        found: dict[str, list[AttemptId]] = {}
        for mark in sorted(self._home.glob(f"attempts/*/{MARK}")):
            with contextlib.suppress(InvalidRequest, OSError, UnicodeDecodeError):
                if pool := mark.read_text().strip():
                    found.setdefault(pool, []).append(parse_attempt(mark.parent.name))
        return found

    def pool(self, key: AttemptId) -> str:
        """Return the pool in a gang's launch spec; the local one if there is no such file."""
        try:
            written = json.loads((attempt_folder(self._home, key) / "job.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
            return LOCAL  # it never began
        return str(written.get("pool") or LOCAL)
