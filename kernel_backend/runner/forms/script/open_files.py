"""Save and restore file objects: closed files are recreated, open files continue at their offset."""

from __future__ import annotations

import io
import os
from typing import Any

from kernel_backend.runner.forms.script.state import reading
from kernel_backend.runner.forms.script.state.graph import REDUCERS, GraphWriter
from kernel_backend.runner.forms.script.state.paths import Path
from kernel_backend.runner.forms.script.state.tombstones import Tombstone

_MODES: dict[type, str] = {
    io.TextIOWrapper: "r",
    io.BufferedReader: "rb",
    io.BufferedWriter: "wb",
    io.BufferedRandom: "r+b",
}


class Lines:
    """Iterator over the lines of an open file; unlike the file's own iterator, it leaves `file.tell()` usable."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> Any:
        line = self.file.readline()
        if not line:
            raise StopIteration
        return line


def closed_file(mode: str) -> Any:
    """Return a new file object that is already closed."""
    file = io.open(os.devnull, mode)  # noqa: SIM115, UP020  # the program's own `open` would hear of it
    file.close()
    return file


def at_position(file: Any, position: int) -> None:
    """Have an open file moved to offset `position` once the state of all objects has been restored."""
    if type(file) is not Tombstone:
        reading.late(lambda: file.seek(position))


def _file(writer: GraphWriter, file: Any, path: Path | None) -> Any:
    if file.closed:
        return closed_file, (getattr(file, "mode", _MODES[type(file)]).replace("x", "w"),)
    made = writer.live(file, path)
    if file.writable() or not file.seekable():  # positions of written files are saved elsewhere
        return made
    try:
        return *made, file.tell(), None, None, at_position
    except OSError:  # the file is being iterated over
        return made


REDUCERS.update(dict.fromkeys(_MODES, _file))
