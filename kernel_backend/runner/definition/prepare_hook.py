"""Run the user's function `prepare` once per node, for all trials of an experiment together.

A marker file records that the function has run. Its return value, and what it changes in memory, are discarded: most
ranks of an experiment never run it, and all ranks must train alike.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from kernel_backend.home import prepared_folder
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.runner import opened_files
from kernel_backend.runner.definition.functions import Functions
from kernel_backend.runner.definition.load import Loaded
from kernel_backend.runner.progress import Progress

LOOK_S = 0.05


def prepared(job: LaunchSpec, loaded: Loaded, progress: Progress) -> None:
    """Wait until the user's function `prepare` has run on this node. Return at once if the definition has no `prepare`.

    Local rank 0 of the first trial on this node runs the function, and all other ranks wait. If it fails or is killed,
    local rank 0 of another trial runs it again. Raises the errors of `prepare`.
    """
    if "prepare" not in loaded.definition.roles:
        return
    folder = prepared_folder(Path(job.home), job.experiment)
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / f"{_place(job)}.done"
    if os.environ.get("LOCAL_RANK", "0") != "0":
        while not done.exists():
            _wait(progress)
    else:
        with _exclusive(done.with_suffix(".lock"), progress):
            if not done.exists():
                progress.tick("preparing", 0)
                _run(job, loaded)
                done.touch()
    progress.tick("loading", 0)


def _place(job: LaunchSpec) -> str:
    """Return a text that identifies this machine and the job's working folder; `prepare` runs once per text."""
    return f"{socket.gethostname()}-{blake2b(os.fsencode(job.cwd), digest_size=8).hexdigest()}"


def _run(job: LaunchSpec, loaded: Loaded) -> None:
    # Shared values are computed for `prepare` only, and files that it reads are not this trial's data.
    with opened_files.unheard():
        Functions(loaded, job.values, job.config.seed, {}).prepared("prepare", frozenset())()


@contextmanager
def _exclusive(lock: Path, progress: Progress) -> Iterator[None]:
    with lock.open("w") as file:
        while True:
            try:
                # Not flock, which processes forked by prepare() would continue to hold after it is killed.
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):
                _wait(progress)
        yield


def _wait(progress: Progress) -> None:
    progress.tick("preparing", 0)
    time.sleep(LOOK_S)
