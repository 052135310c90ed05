"""Find the gangs that an earlier process of the service submitted, by the file `listed` in their folders."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Protocol

from kernel_backend.errors import InvalidRequest
from kernel_backend.home import attempt_folder
from kernel_backend.model.ids import AttemptId, parse_attempt
from kernel_backend.model.resources import LOCAL
from kernel_backend.tail import small_file

MARK = "listed"  # file in the folder of each gang that an engine lists; its content is the pool, empty for local


class Marks(Protocol):
    """Interface to find out which gangs earlier processes of the service have submitted, and to which pools."""

    def by_pool(self) -> dict[str, list[AttemptId]]:
        """Return the gangs that were submitted and not forgotten yet, by name of their pool, without the local pool."""

    def pool(self, key: AttemptId) -> str:
        """Return the name of the pool to which a gang was submitted; if nothing is recorded, that of the local pool."""


class FolderMarks:
    """Reader of which gangs were submitted, from the files in the attempts' folders below the service's home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def by_pool(self) -> dict[str, list[AttemptId]]:
        """Return the gangs that were submitted and not forgotten yet, by name of their pool, without the local pool."""
        found: dict[str, list[AttemptId]] = {}
        for mark in sorted(self._home.glob(f"attempts/*/{MARK}")):
            with contextlib.suppress(InvalidRequest, OSError, UnicodeDecodeError):
                if pool := mark.read_text().strip():
                    found.setdefault(pool, []).append(parse_attempt(mark.parent.name))
        return found

    def pool(self, key: AttemptId) -> str:
        """Return the name of the pool in a gang's launch spec (`job.json`); without that file, of the local pool."""
        try:
            written = dict(json.loads(small_file(attempt_folder(self._home, key) / "job.json")))
        except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError, TypeError, RecursionError):
            return LOCAL  # the attempt never began
        return str(written.get("pool") or LOCAL)
