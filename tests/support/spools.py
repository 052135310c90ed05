"""Read all records of a spool, page by page."""

from __future__ import annotations

from pathlib import Path

from kernel_backend.launch.spool import read_page
from kernel_backend.model.reports import SpoolPosition, SpoolRecord


def read_after(path: Path, number: int) -> list[SpoolRecord]:
    """Return all records of a spool whose number is greater than `number`."""
    begin, found = SpoolPosition(), list[SpoolRecord]()
    while True:
        page = read_page(path, begin, number)
        found += page.records
        begin = page.end
        if page.last:
            return found
