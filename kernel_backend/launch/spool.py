"""Read the spool of an attempt: the file to which rank 0 appends its records, one line of JSON each.

The launcher reads it while the ranks run, the service after they have ended. As the file belongs to the user, it is not
trusted: each read has a maximum size, and invalid lines are skipped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from kernel_backend.model import versions
from kernel_backend.model.record import first_problems, problem_text
from kernel_backend.model.reports import LARGEST, SpoolPage, SpoolPosition, SpoolRecord
from kernel_backend.tail import opened

PAGE_RECORDS = 1000
PAGE_BYTES = 2**20  # bytes of new records in a page; the record that exceeds the limit is the last one
LINE_BYTES = 4 * 2**20  # longer lines are invalid, as a record must fit into a delivery
SCAN_BYTES = 16 * 2**20  # bytes read for one page, including skipped lines
_LINE: TypeAdapter[SpoolRecord] = TypeAdapter(SpoolRecord)
_BEGINNING = re.compile(rb'\{"type":"[a-z]{1,20}","number":([0-9]{1,19}),')  # beginning of a line, as ranks write it


class Refused(NamedTuple):
    """Spool record that the service has refused, with the error."""

    record: SpoolRecord
    error: Exception

    def __str__(self) -> str:
        """Return the number of the record and the error, as text."""
        return f"record {self.record.number}: {self.error}"


class SpoolReader:
    """Reader of a spool that returns each record once, in order; an incomplete last line is left for the next read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = SpoolPosition()

    def read(self) -> SpoolPage:
        """Return the next page of records; it is empty if there are no new ones, or the file does not exist."""
        page = read_page(self._path, self._position)
        self._position = page.end  # set last: if a read fails, the page is read again
        return page


def read_page(path: Path, begin: SpoolPosition, after: int = 0) -> SpoolPage:
    """Return a page of the spool's records from the offset `begin` on, only those with numbers above `after`.

    Lines that are invalid or repeat a number are skipped and counted. Those before record `after` are not counted, as
    an earlier read has counted them. Raises OSError if the file cannot be read; without a file the page is empty.
    """
    found = _Page(begin, after)
    try:
        with opened(path) as file:
            file.seek(begin.offset)
            while not found.full:
                line = file.readline(LINE_BYTES)
                if not line.endswith(b"\n") and len(line) < LINE_BYTES:
                    return found.page(last=True)
                found.add(line)
    except FileNotFoundError:
        return found.page(last=True)
    return found.page(last=False)


def left_out_note(attempt: int, count: int, problem: str) -> str:
    """Return a note to the user that `count` lines of an attempt's spool were skipped.

    `problem` says what is wrong with one of them.
    """
    lines = "a line of its spool is" if count == 1 else f"{count} lines of its spool are"
    return f"attempt {attempt}: {lines} left out; {problem}"


def send_in_parts(
    records: Sequence[SpoolRecord],
    send: Callable[[Sequence[SpoolRecord]], object],
    refused: tuple[type[Exception], ...],
) -> list[Refused]:
    """Send records by `send`; if they are refused, send each half by itself, and so on down to single records.

    Returns the single records that are refused. Only errors of the classes `refused` count as refusals; other errors
    are raised. Some records may have been sent before such an error; they can be sent again.
    """
    if not records:
        return []
    try:
        send(records)
    except refused as error:
        if len(records) == 1:
            return [Refused(records[0], error)]
        half = len(records) // 2
        return [*send_in_parts(records[:half], send, refused), *send_in_parts(records[half:], send, refused)]
    return []


class _Page:
    """Page of records that is being built, line by line, from a spool file."""

    def __init__(self, begin: SpoolPosition, after: int) -> None:
        self._offset, self._number, self._after = begin.offset, begin.number, after
        self._begun = begin.offset
        self._records: list[SpoolRecord] = []
        self._bytes = 0
        self._skipped, self._problem = 0, ""

    @property
    def full(self) -> bool:
        """Return True if the page has reached its maximum size, so that no more lines may be added."""
        scanned = self._offset - self._begun
        return len(self._records) >= PAGE_RECORDS or self._bytes >= PAGE_BYTES or scanned >= SCAN_BYTES

    def add(self, line: bytes) -> None:
        """Add the record in a line; skip and count the line if it is invalid."""
        where, self._offset = self._offset, self._offset + len(line)
        beginning = _BEGINNING.match(line)
        if beginning is not None and self._number < int(beginning[1]) <= self._after:
            self._take_known(int(beginning[1]))
            return
        try:
            record = versions.read(_LINE, line)
        except ValidationError as error:
            self._skip(where, _complaint(line, error))
            return
        if record.number <= self._number:
            self._skip(where, f"its number {record.number} comes after number {self._number}")
        elif record.number <= self._after:
            self._take_known(record.number)
        else:
            self._number = record.number
            self._records.append(record)
            self._bytes += len(line)

    def page(self, *, last: bool) -> SpoolPage:
        """Return the page with all records added so far; `last` says that the spool has no more complete lines."""
        return SpoolPage(
            records=tuple(self._records),
            end=SpoolPosition(offset=min(self._offset, LARGEST), number=self._number),
            last=last,
            skipped=self._skipped,
            problem=self._problem,
        )

    def _take_known(self, number: int) -> None:
        self._number = number
        self._skipped, self._problem = 0, ""

    def _skip(self, where: int, problem: str) -> None:
        self._skipped += 1
        self._problem = self._problem or f"the line at byte {where}: {problem}"[:500]


def _complaint(line: bytes, error: ValidationError) -> str:
    """Return why a line is invalid, such as `total_steps: Input should be less than ...`."""
    if len(line) >= LINE_BYTES:
        return f"it has more than {LINE_BYTES // 2**20} MiB"
    for first in first_problems(error)[:1]:
        return ": ".join([*[".".join(str(part) for part in first["loc"])] * bool(first["loc"]), first["msg"]])
    return problem_text(error)
