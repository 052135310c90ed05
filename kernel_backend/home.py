"""Where Daylight keeps its files: `DAYLIGHT_HOME`, else a folder under the Jupyter data directory."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernel_backend.errors import HomeUnusable

DATABASE = "daylight.db"
# What only the owner of a home may read: files with what was submitted, told and logged, and folders with the rest.
_PRIVATE = (
    f"{DATABASE}*",
    "fingerprints.db*",
    "token",
    "service.*",
    "hub.json",
    "attempts",
    "checkpoints",
    "artifacts",
    "snapshots",
    "searches",
    "standins",
    "prepared",
    "forkservers",
    "gangs",
)
# All folders whose entries begin with the number of an experiment: `12`, `12.1` or `12.1-2`.
_NUMBERED = ("attempts", "standins", "prepared", "artifacts", "checkpoints", "searches", "gangs")
# What is named by more digits is no experiment's: a backup of `20261123`, or what a user made to use up all numbers.
_NUMBER = re.compile(r"(\d{1,7})(?:\.\d{1,9}(?:-\d{1,9})?)?")


def _jupyter_data() -> Path:
    """Jupyter's own rule (`jupyter --data-dir` on Linux), written out because a thin kernel may lack jupyter_core."""
    if given := os.environ.get("JUPYTER_DATA_DIR"):
        return Path(given)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "jupyter"


def home() -> Path:
    """The folder, made on first use and readable by its owner alone (0700); raises HomeUnusable."""
    folder = Path(os.environ.get("DAYLIGHT_HOME") or _jupyter_data() / "daylight").expanduser().absolute()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


@contextlib.contextmanager
def writing(home: Path) -> Iterator[None]:
    """Raise HomeUnusable, with what to do, where a file or folder of a home cannot be made or opened within."""
    try:
        yield
    except OSError as error:
        raise HomeUnusable(
            f"Daylight's home {home} cannot be written ({error.strerror or error}): make it writable for you, or set "
            "DAYLIGHT_HOME to a folder that is"
        ) from error


def make_private(home: Path, *, group: bool) -> list[Path]:
    """Let no others read a home and what Daylight has there; return what they could. `group` may go on to.

    What is another user's, or a link, stays as it is.
    """
    forbidden = 0o007 if group else 0o077
    found = []
    for path in [home, *(each for name in _PRIVATE for each in home.glob(name))]:
        try:
            status = path.lstat()
        except FileNotFoundError:  # a file of SQLite's, say, of a service that has just ended
            continue
        if stat.S_ISLNK(status.st_mode) or not status.st_mode & forbidden or status.st_uid != os.geteuid():
            continue
        with contextlib.suppress(OSError):  # of a file system without modes
            path.chmod(stat.S_IMODE(status.st_mode) & ~forbidden)
            found.append(path)
    return found if home in found else []  # what lay in a private folder, nobody could read


def make_database(home: Path) -> Path:
    """Return the file of the database, empty where there was none: SQLite would make it by the umask."""
    with writing(home):
        os.close(os.open(home / DATABASE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return home / DATABASE


def attempt_folder(root: Path, key: object) -> Path:
    """Where attempt `12.1-2` keeps its job, spool, logs and outcome."""
    return root / "attempts" / str(key)


def stand_in_folder(root: Path, experiment: int, trial: int) -> Path:
    """Where a trial has its working folder as it was, should files in the real one have changed; of all attempts."""
    return root / "standins" / f"{experiment}.{trial}"


def prepared_folder(root: Path, experiment: int) -> Path:
    """Where it stands on which nodes an experiment's `prepare` has run, for all of its trials."""
    return root / "prepared" / str(experiment)


def artifact_folder(root: Path, experiment: int, trial: int) -> Path:
    """Where the artifacts of a trial are, of all its attempts."""
    return root / "artifacts" / str(experiment) / str(trial)


def names_of_attempts(root: Path) -> list[str]:
    """Return what lies among the attempts' folders."""
    return _names(root / "attempts")


def largest_number(root: Path) -> int:
    """Return the largest number of an experiment that any folder here names; 0 where none does."""
    return largest_of(name for folder in _NUMBERED for name in _names(root / folder))


def largest_of(names: Iterable[str]) -> int:
    """Return the largest number of an experiment among the names of folders; 0 where there is none."""
    return max((int(found[1]) for name in names if (found := _NUMBER.fullmatch(name))), default=0)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # none yet, or not to be read: what is in it cannot be used either
        return []
