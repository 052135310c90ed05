"""Provide the loop value `run`, through which a definition's functions save artifacts."""

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
    """Training in this process: the loop value `run`, of which `daylight.run` is the single instance.

    In a notebook it only prints what it would do, so that functions of a definition can be tried out.

    Examples
    --------
    >>> from daylight import run
    >>> run.folder.is_dir()
    True
    """

    def __init__(self) -> None:
        self._keeper: Keeper | None = _say
        self._process: int | None = None  # the process that trains; None: none does
        self._folder: Path | None = None

    def artifact(self, name: str, path: str | os.PathLike[str]) -> None:
        """Save a file, or a folder as `<name>.zip`, with the trial, replacing an earlier one of this name.

        Rank 0 saves it; on other ranks nothing happens. A full disk is reported, and training goes on.

        Parameters
        ----------
        name : str
            Name of the artifact.
        path : str or PathLike
            File or folder to save.

        Raises
        ------
        InvalidRequest
            The name is invalid, `path` does not exist, or a link leads out of the folder.

        Examples
        --------
        >>> from pathlib import Path
        >>> from daylight import run
        >>> written = Path("notes.txt").write_text("a note")
        >>> run.artifact("notes", "notes.txt")
        run.artifact: notes (text/plain, 6 bytes); an experiment would keep it
        """
        if self._process not in (None, os.getpid()):
            raise InvalidRequest("run.artifact() is called in a loader worker: call it in a function of the definition")
        if self._keeper is not None:
            self._keeper(name, Path(path))

    @property
    def folder(self) -> Path:
        """Return the private folder of this process to write into, as concurrent trials share the working folder."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="daylight-"))
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def begin(self, keeper: Keeper | None) -> None:
        """Start training in this process; the runner calls it.

        Parameters
        ----------
        keeper : callable, optional
            Function of a name and a path that saves artifacts; None to ignore them.
        """
        self._keeper, self._process = keeper, os.getpid()

    def __reduce__(self) -> str:
        return "run"  # copies refer to the same object, and other processes to their own


def _say(name: str, path: Path) -> None:
    source = look(name, path)
    what = "folder" if source.files is not None else source.media
    print(f"run.artifact: {source.name} ({what}, {source.size} bytes); an experiment would keep it")


run = Run()
