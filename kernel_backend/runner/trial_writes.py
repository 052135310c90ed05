"""Tell the user of a search when two of its trials write the same file, as each may read what the other has written.

Trials share the user's working folder, as programs started there by hand would. Files that are only appended to, and
databases, are meant for several writers. The first writers are recorded in the home; nodes that do not share it see
only that a file is younger than their trial's attempt.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from kernel_backend.home import program_folder
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.runner.definition.step_files import caches_of, is_result

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def first_writer(folder: Path, path: str, trial: int) -> int | None:
    """Record in `folder` that a trial writes the file `path`; return the trial that was first, if it is another."""
    record = folder / blake2b(os.fsencode(path), digest_size=16).hexdigest()
    try:
        record.symlink_to(str(trial))  # a link is created together with its text
    except FileExistsError:
        first = int(os.readlink(record))
        return first if first != trial else None
    return None


def written_by(event: str, args: tuple[Any, ...]) -> Any:
    """Return the file that an audit event reports to be written, other than by appending; None for any other event."""
    if event == "open" and args[2] & _WRITES and not args[2] & os.O_APPEND:
        return args[0]
    return args[1] if event == "os.rename" else None  # os.replace, too


def is_younger(path: str, time: float) -> bool:
    """Return True if a file was changed after a time (Unix seconds); False if there is none."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_mtime > time
    return False


class TrialWrites:
    """Listener, by an audit hook (PEP 578), to the files that this process writes for a trial of a search."""

    def __init__(self, job: LaunchSpec, note: Callable[[str], None]) -> None:
        """Set up the listener. `note` is called for the first file that another trial of the search has written."""
        self._job, self._note = job, note
        self._cwd, self._process = os.path.realpath(job.cwd), os.getpid()
        self._but = (*caches_of(os.environ), *map(os.path.realpath, (job.home, job.checkpoints, job.code)))
        self._folder = program_folder(Path(job.home), job.experiment, job.trial).with_name("written")
        self._seen: set[str] = set()
        self._began = 0.0
        self._over = False

    def begin(self) -> None:
        """Listen from now on, until the first file was told; a hook cannot be removed."""
        self._began = time.time()
        with contextlib.suppress(OSError):  # without the folder, as on a full disk, nothing is told
            self._folder.mkdir(parents=True, exist_ok=True)
        sys.addaudithook(self._hear)

    def end(self) -> None:
        """Ignore files that are written from now on."""
        self._over = True

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if self._over or event not in ("open", "os.rename"):
            return
        with contextlib.suppress(Exception):  # an error here must not reach the code that writes a file
            file = written_by(event, args)
            if isinstance(file, str | bytes | os.PathLike) and os.getpid() == self._process:
                self._written(os.path.realpath(os.fsdecode(file)))

    def _written(self, path: str) -> None:
        if path in self._seen or not is_result(path, self._cwd, self._but):
            return
        self._seen.add(path)
        by_another = self._job.staged and is_younger(path, self._began)
        first = first_writer(self._folder, path, self._job.trial)
        if first is not None or by_another:
            self.end()
            other = "another trial" if first is None else f"trial {first}"
            self._note(shared_text(os.path.relpath(path, self._cwd), other, self._job))


def shared_text(name: str, other: str, job: LaunchSpec) -> str:
    """Return a warning that the trial of `job` writes the file `name`, which an `other` trial has written."""
    stem, suffix = os.path.splitext(name)
    values = "".join(f"-{{{each}}}" for each in job.params)
    return (
        f"{name} is written by {other} of this search, too. Trials share the working folder, so each may read "
        "what the other wrote, and its metrics may be the other's: name the file by the trial's hyperparameters"
        + (f', as in f"{stem}{values}{suffix}"' if values else "")
    )
