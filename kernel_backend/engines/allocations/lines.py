"""Append records to files as lines of JSON, and read them: orders to the holder of an allocation, and its events.

Only the standard library is imported, since a holder process stays in the memory of its node.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

AT_ONCE = 16 * 2**20  # bytes read by one call
EVENTS, ORDERS = "events", "orders"  # files in the folder of an allocation


def read_lines(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the records in the complete lines of a file, from a byte offset on, and the offset after them.

    The file is opened for each call, since on NFS only this shows what another host has appended. Invalid lines are
    skipped, and what is beyond `AT_ONCE` bytes is left for the next call.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(AT_ONCE)
    except OSError:  # the file does not exist yet, or the file system does not answer
        return [], offset
    if len(data) < AT_ONCE or b"\n" in data:
        data = data[: data.rfind(b"\n") + 1]
    found = []
    for line in data.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # its writer died, or the disk was full
            continue
        if isinstance(record, dict):
            found.append(record)
    return found, offset + len(data)


def append_line(path: Path, **record: Any) -> None:
    """Append a record to a file as one line of JSON.

    If the last line has no line break, as its writer died, the break is added first.
    """
    data = json.dumps(record).encode() + b"\n"
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            data = data if file.read(1) == b"\n" else b"\n" + data
        file.write(data)
