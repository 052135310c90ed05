"""The loop value `run`: what a definition's functions may say besides what they return."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from kernel_backend.artifacts.write import look
from kernel_backend.errors import InvalidRequest

Keeper = Callable[[str, Path], None]


class Run:
    """The training that goes on in this process. There is one, `run`: in a notebook it only says what it would do."""

    def __init__(self) -> None:
        self._keeper: Keeper | None = _say
        self._process: int | None = None  # the one that trains; None: none does
        self._folder: Path | None = None

    def artifact(self, name: str, path: str | os.PathLike[str]) -> None:
        """Keep a file, or a folder as `<name>.zip`, with the trial, in place of what it has kept under this name.

        Rank 0 keeps; on the others nothing happens. Raises InvalidRequest for a name that is none, for a path where
        nothing is, and for a folder with a link that leads out of it. A full disk is told, and training goes on.
        """
        if self._process not in (None, os.getpid()):
            raise InvalidRequest("run.artifact() is called in a loader worker: call it in a function of the definition")
        if self._keeper is not None:
            self._keeper(name, Path(path))

    @property
    def folder(self) -> Path:
        """A folder of this process alone to write into: trials that run beside it share the working folder."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="daylight-"))
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def begin(self, keeper: Keeper | None) -> None:
        """From now on this process trains, and `keeper` does what is asked; None does nothing."""
        self._keeper, self._process = keeper, os.getpid()

    def __reduce__(self) -> str:
        return "run"  # a copy of whatever holds it holds the same, and another process its own


def _say(name: str, path: Path) -> None:
    source = look(name, path)
    what = "folder" if source.files is not None else source.media
    print(f"run.artifact: {source.name} ({what}, {source.size} bytes); an experiment would keep it")


run = Run()
