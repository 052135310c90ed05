"""Find the frames of a stack that belong to the user's code, and name them by notebook cell or file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import kernel_backend
from kernel_backend.model.snapshot import PROJECT, Snapshot
from kernel_backend.model.trial import Frame

OURS = Path(kernel_backend.__file__).parent


class Call(NamedTuple):
    """Frame of a stack trace: file, line number, function name and text of the source line."""

    file: str
    line: int
    function: str
    text: str = ""


class Sources(NamedTuple):
    """Folders of the user's code.

    `code` has the unpacked training definition; relative paths in the notebook cell start at `cwd`. The program of a
    command has the path of the user's own file, which may be elsewhere in the snapshot's project.
    """

    code: Path
    cwd: Path
    snapshot: Snapshot | None


def users_frame(call: Call, sources: Sources) -> Frame | None:
    """Convert a frame of a stack trace to a `Frame` that names the user's notebook cell or file.

    `sources` has the folders of the user's code; returns None if the frame is in none of them.
    """
    if call.file.startswith("<"):  # <frozen importlib>, <string>
        return None
    path = Path(os.path.abspath(call.file))
    name = _name(path, sources)
    if name is None:
        return None
    in_definition = sources.snapshot is not None and path == sources.code / "definition.py"
    origin = sources.snapshot.locate(call.line) if sources.snapshot and in_definition else None
    frame = Frame(file=name, line=call.line, function=call.function, text=call.text)
    if origin and origin.cell is not None:
        return frame.model_copy(update={"cell": origin.cell, "cell_line": origin.line})
    if origin and origin.file is not None:
        return frame.model_copy(update={"file": origin.file, "line": origin.line})
    return frame


def _name(path: Path, sources: Sources) -> str | None:
    """Return a file's path relative to the working folder or the project; None for files outside, such as packages."""
    installed = "site-packages" in path.parts or path.is_relative_to(sys.prefix) or path.is_relative_to(OURS)
    project = sources.snapshot.project if sources.snapshot else None
    for folder in (sources.code, sources.cwd, *((Path(project.root),) if project else ())):
        if path.is_relative_to(folder) and not installed:
            name = path.relative_to(folder)
            return str(name.relative_to(PROJECT) if name.parts[0] == PROJECT and folder == sources.code else name)
    return None
