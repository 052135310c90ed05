"""Provide empty databases of this version's schema: migrated once in each test process, then copied.

The migrations take a tenth of a second of a processor, and many hundred tests begin with an empty database.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from kernel_backend.store.sql import SqlStore


def empty_database(file: Path) -> Path:
    """Create an empty SQLite database at `file` for its user alone, unless it exists; return `file`."""
    if not file.exists():
        file.touch(0o600)
        file.write_bytes(_empty())
    return file


@functools.cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "daylight.db"
        SqlStore(file).close()  # which leaves nothing in the write-ahead log
        return file.read_bytes()
