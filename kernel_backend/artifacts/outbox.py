"""Store the artifacts of an attempt on a node that cannot read the home directory, until they are sent to the service.

The launcher sends them.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from kernel_backend.artifacts.write import ArtifactSource, keep
from kernel_backend.durable import replacing
from kernel_backend.model.reports import ArtifactSaved
from kernel_backend.model.versions import read

_FOLDER, _RECORD = "artifacts", ".json"


class Waiting(NamedTuple):
    """Artifact that is still to be sent to the service: its record and the path of its file."""

    record: ArtifactSaved
    content: Path


class Outbox:
    """Folder with the artifacts of an attempt that are to be sent to the service.

    The file of an artifact is `artifacts/NUMBER/NAME`. Once it is complete, there is a record `artifacts/NUMBER.json`.
    """

    def __init__(self, attempt: Path) -> None:
        self._folder = attempt / _FOLDER

    def put(self, source: ArtifactSource, step: int) -> ArtifactSaved:
        """Copy an artifact, saved at training step `step`, into the outbox, and return its record.

        Raises OSError, for instance if the disk is full, after removing the partial copy.
        """
        number = str(time.monotonic_ns())
        content = self._folder / number
        try:
            saved = keep(source, content).record(source, step, time.time())
            with replacing(self._folder / (number + _RECORD), mode=0o600, durable=False) as file:
                file.write(saved.model_dump_json().encode())
        except OSError:
            shutil.rmtree(content, ignore_errors=True)
            raise
        return saved

    @property
    def empty(self) -> bool:
        """Return whether all artifacts have been sent or refused; any process may ask."""
        return not any(self._folder.glob(f"*{_RECORD}"))

    def waiting(self) -> list[Waiting]:
        """Return the artifacts to send, oldest first: of each name only the newest, after deleting the others.

        Files with invalid records are ignored, and the records deleted, since the user's code can write there.
        """
        newest: dict[str, Waiting] = {}
        for path in sorted(self._folder.glob(f"*{_RECORD}"), key=lambda path: (len(path.stem), path.stem)):
            try:
                record = read(ArtifactSaved, path.read_bytes())
            except ValidationError:
                path.unlink()
                continue
            if (earlier := newest.pop(record.name, None)) is not None:
                self.remove(earlier)
            newest[record.name] = Waiting(record, path.with_suffix("") / record.name)
        return list(newest.values())

    def remove(self, waiting: Waiting) -> None:
        """Remove an artifact after it was sent, or after the service has refused it."""
        folder = waiting.content.parent
        with contextlib.suppress(OSError):
            folder.with_name(folder.name + _RECORD).unlink()
        shutil.rmtree(folder, ignore_errors=True)
