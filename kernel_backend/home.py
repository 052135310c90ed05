"""Locate Daylight's files in its home directory: `DAYLIGHT_HOME`, else a folder in Jupyter's data directory."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kernel_backend.errors import HomeUnusable

DATABASE = "daylight.db"
DATABASE_URL = "database-url"  # file with the URL of the service's database, if that is not the SQLite file in the home
LAUNCHERS = "launchers.json"  # file with the addresses at which launchers on other nodes reach the service
# Paths that only the owner of a home may read: submissions, records, logs and others.
_PRIVATE = (
    f"{DATABASE}*",
    DATABASE_URL,
    "fingerprints.db*",
    "token",
    "service.*",
    "hub.json",
    LAUNCHERS,
    "attempts",
    "checkpoints",
    "artifacts",
    "programs",
    "snapshots",
    "searches",
    "standins",
    "prepared",
    "forkservers",
    "gangs",
    "allocations",
)
# Folders whose entries begin with an experiment number: `12`, `12.1` or `12.1-2`.
_NUMBERED = ("attempts", "standins", "prepared", "artifacts", "programs", "checkpoints", "searches", "gangs")
LOGS = ("attempts", "searches")  # folders with logs, records and unpacked code, which ended experiments do not need
# Longer numbers are no experiments: a backup of `20261123`, or a user's attempt to use up all numbers.
_NUMBER = re.compile(r"(\d{1,7})(?:\.\d{1,9}(?:-\d{1,9})?)?")


def _jupyter_data() -> Path:
    """Return Jupyter's data directory on Linux, without jupyter_core, which a kernel may lack."""
    if given := os.environ.get("JUPYTER_DATA_DIR"):
        return Path(given)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "jupyter"


def home() -> Path:
    """Return Daylight's home directory, created if missing and readable only by its owner; raise HomeUnusable.

    A relative DAYLIGHT_HOME is made absolute, so that it stays the same when this process changes its folder.
    """
    given = os.environ.get("DAYLIGHT_HOME")
    folder = Path(given or _jupyter_data() / "daylight").expanduser().absolute()
    if given:
        os.environ["DAYLIGHT_HOME"] = str(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


@contextlib.contextmanager
def writing(home: Path) -> Iterator[None]:
    """Convert an OSError in the block to HomeUnusable, with advice on how to make the home directory writable."""
    try:
        yield
    except OSError as error:
        raise HomeUnusable(
            f"Daylight's home {home} cannot be written ({error.strerror or error}): make it writable for you, or set "
            "DAYLIGHT_HOME to a folder that is"
        ) from error


def make_private(home: Path, *, group: bool) -> list[Path]:
    """Deny other users access to Daylight's files in a home directory; return the paths that were accessible.

    With `group` the group keeps its access. Files of other users, and links, are not changed.
    """
    forbidden = 0o007 if group else 0o077
    found = []
    for path in [home, *(each for name in _PRIVATE for each in home.glob(name))]:
        try:
            status = path.lstat()
        except FileNotFoundError:  # such as a file of SQLite that has just been deleted
            continue
        if stat.S_ISLNK(status.st_mode) or not status.st_mode & forbidden or status.st_uid != os.geteuid():
            continue
        with contextlib.suppress(OSError):  # a file system without permissions
            path.chmod(stat.S_IMODE(status.st_mode) & ~forbidden)
            found.append(path)
    return found if home in found else []  # if the home was private, no file was accessible


def make_database(home: Path) -> Path:
    """Return the path of the database; a missing one is created empty and private, as SQLite would use the umask."""
    with writing(home):
        os.close(os.open(home / DATABASE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return home / DATABASE


def database_server(home: Path) -> str:
    """Return the URL, without password, of the database server of a home directory; "" if it has a SQLite file."""
    try:
        return (home / DATABASE_URL).read_text().strip()
    except OSError:
        return ""


def attempt_folder(root: Path, key: object) -> Path:
    """Return the folder of an attempt, with its launch spec, reported records, logs and outcome.

    `key` is the attempt's id: `12.1-2` is attempt 2 of trial 1 of experiment 12.
    """
    return root / "attempts" / str(key)


def allocation_folder(root: Path, id: str) -> Path:
    """Return the folder of an allocation: slots that a search keeps between trials; `id` is such as `12-5f3a9c`."""
    return root / "allocations" / id


def stand_in_folder(root: Path, experiment: int, trial: int) -> Path:
    """Return the folder for the overlay of a trial's working folder, in which its attempts train."""
    return root / "standins" / f"{experiment}.{trial}"


def prepared_folder(root: Path, experiment: int) -> Path:
    """Return the folder whose files say on which nodes an experiment's function `prepare` has run already."""
    return root / "prepared" / str(experiment)


def artifact_folder(root: Path, experiment: int, trial: int) -> Path:
    """Return the folder of a trial's artifacts, shared by all its attempts."""
    return root / "artifacts" / str(experiment) / str(trial)


def program_folder(root: Path, experiment: int, trial: int) -> Path:
    """Return the folder of files of a trial that runs a shell command, with its checkpoint folder, for all attempts."""
    return root / "programs" / str(experiment) / str(trial)


def folders_of(root: Path, experiment: int) -> list[tuple[str, Path]]:
    """Return (kind, path) of each folder of an experiment in a home directory, except its checkpoints.

    The kind is the name of the parent folder, such as `attempts`.
    """
    return [
        (kind, root / kind / name)
        for kind in _NUMBERED
        if kind != "checkpoints"  # accessed through checkpoint storage
        for name in _names(root / kind)
        if (found := _NUMBER.fullmatch(name)) and int(found[1]) == experiment
    ]


def sizes_of_experiments(folders: Mapping[str, Path]) -> dict[int, dict[str, int]]:
    """Return the disk usage in bytes by experiment number and kind of folder.

    `folders` are folders by kind, as `numbered_folders` returns them.
    """
    found: dict[int, dict[str, int]] = {}
    for kind, folder in folders.items():
        for name in _names(folder):
            if number := _NUMBER.fullmatch(name):
                sizes = found.setdefault(int(number[1]), {})
                sizes[kind] = sizes.get(kind, 0) + tree_size(folder / name)
    return found


def numbered_folders(root: Path) -> dict[str, Path]:
    """Return those folders of a home directory whose entries are named by experiment number.

    The keys are the folders' names, such as `attempts`.
    """
    return {kind: root / kind for kind in _NUMBERED}


def tree_size(folder: Path) -> int:
    """Return the total size in bytes of all files below a folder; hard-linked files are counted once.

    Symbolic links are not followed; files deleted meanwhile are not counted.
    """
    sizes: dict[tuple[int, int], int] = {}
    if folder.is_symlink():
        return 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(where, name))
                sizes[found.st_dev, found.st_ino] = found.st_size
    return sum(sizes.values())


def names_of_attempts(root: Path) -> list[str]:
    """Return the names of all attempts' folders in a home directory."""
    return _names(root / "attempts")


def largest_number(root: Path) -> int:
    """Return the largest experiment number that any folder of a home directory has; 0 for none."""
    return largest_of(name for folder in _NUMBERED for name in _names(root / folder))


def largest_of(names: Iterable[str]) -> int:
    """Return the largest experiment number in these names of folders; 0 for none."""
    return max((int(found[1]) for name in names if (found := _NUMBER.fullmatch(name))), default=0)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # missing or unreadable, so that its content cannot be used either
        return []
