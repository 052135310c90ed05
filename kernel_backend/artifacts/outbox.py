"""Store an attempt's artifacts on a node that cannot read the home directory, until the launcher has sent them."""

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
    """Artifact that waits to be sent: its record and the path of its file."""

    record: ArtifactSaved
    content: Path


class Outbox:
    """Folder with the artifacts of an attempt that are to be sent to the service.

    Each is `artifacts/NUMBER/NAME` and, once complete, has the record `artifacts/NUMBER.json`.
    """

    def __init__(self, attempt: Path) -> None:
        self._folder = attempt / _FOLDER

    def put(self, source: ArtifactSource, step: int) -> None:
        """Copy an artifact into the outbox.

        On an OSError, such as a full disk, remove the partial copy and raise it.
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

    def waiting(self) -> list[Waiting]:
        """Return the newest artifact of each name, oldest first; remove earlier ones of the same name.

        Invalid records are removed, since the user can write the files.
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
