"""The spool of an attempt, read: rank 0 appends a line a record; its launcher or the service reads on from there."""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from kernel_backend.model.reports import SpoolRecord

_LINE: TypeAdapter[SpoolRecord] = TypeAdapter(SpoolRecord)
_log = logging.getLogger(__name__)


class SpoolReader:
    """Gives each complete record once, in order; what is still being written waits for its end of line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self, limit: int = 2000) -> list[SpoolRecord]:
        """The next records, at most `limit`; empty when there is nothing new or no spool yet."""
        found: list[SpoolRecord] = []
        offset = self._offset
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                while len(found) < limit and (line := file.readline()).endswith(b"\n"):
                    offset += len(line)
                    found.extend(self._parse(line))
        except FileNotFoundError:
            return []
        self._offset = offset  # not before: what could not be read to the end comes again
        return found

    def _parse(self, line: bytes) -> list[SpoolRecord]:
        try:
            return [_LINE.validate_json(line)]
        except ValidationError as error:
            # A line torn by a full disk: the record is lost, those after it are not.
            _log.warning("a line of %s is no record: %s", self._path, error)
            return []


def read_after(path: Path, number: int) -> list[SpoolRecord]:
    """All records of a spool whose number is greater than `number`."""
    reader, found = SpoolReader(path), list[SpoolRecord]()
    while batch := reader.read():
        found.extend(record for record in batch if record.number > number)
    return found
