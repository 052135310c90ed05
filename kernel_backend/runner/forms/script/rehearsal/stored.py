"""Store the verdict of a trial's rehearsals outside of its checkpoints, which a verdict may set aside."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_backend.durable import replacing


class StoredVerdict:
    """Verdict of a trial's rehearsals in a file, for later attempts of the trial."""

    def __init__(self, path: Path, uid: str) -> None:
        """Set up the file; a verdict of another trial than `uid`, which had the same number, does not count."""
        self._path, self._uid = path, uid

    def over(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a checkpoint says of rehearsals, `known`, with the stored verdict in its place if there is one.

        The stored verdict is never older.
        """
        with contextlib.suppress(OSError, ValueError):
            stored = json.loads(self._path.read_text())
            if stored.pop("uid") == self._uid:
                return {**known, **stored}
        return dict(known)

    def write(self, verdict: Mapping[str, Any]) -> None:
        """Replace the stored verdict."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self._path, durable=False) as file:
            file.write(json.dumps({**verdict, "uid": self._uid}).encode())
