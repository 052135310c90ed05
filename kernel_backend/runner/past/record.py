"""Record the state of the user's files as a program begins, and keep what it then removes or overwrites.

The working folder is listed once. From then on an audit hook (PEP 578) hears of each change before it happens: a file
that was there at the start is kept by a hard link before it is removed or moved, and by a copy before it is written.
What the program itself has created needs no keeping: a restart hides it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_backend.runner import native_opens
from kernel_backend.runner.definition.step_files import caches_of, is_result
from kernel_backend.runner.past import listing
from kernel_backend.runner.past.databases import Version, file_of, version

LARGEST = 64 * 2**20  # bytes of a file that is copied before it is overwritten
TOTAL = 2**30
MOST = 10_000  # files whose names are kept
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_FICLONE = 0x40049409  # ioctl: a copy that shares its blocks, where the file system can
_JOURNAL, _LISTING, _KEPT = "past.jsonl", "listing", "kept"


class Past:
    """State of a program's files at its start: its folders, what was in them, and what has been kept of it."""

    def __init__(self, folder: Path, cwd: str, own: Sequence[str], uid: str = "") -> None:
        """Read the record in `folder`, if an earlier attempt of the trial `uid` has written one.

        `cwd` is the working folder; the folders `own` are the job's, whose files are ignored.
        """
        self.folder, self.cwd, self._uid = folder, os.path.realpath(cwd), uid
        self.own = tuple(map(os.path.realpath, own))
        self._caches = (*caches_of(os.environ), *self.own)
        self._temporary = os.path.realpath(tempfile.gettempdir())
        self.uids: dict[str, None] = {}  # of the trial that the record is of; another may have had the same number
        self.created: dict[str, None] = {}
        self.made: dict[str, None] = {}  # what the setup has created in the working folder
        self.later: dict[str, None] = {}  # what the program has created there since, MOST of it
        self.missed: dict[str, None] = {}  # what the setup has looked for, and was not there
        self.in_setup = False
        self.grown: dict[str, int] = {}  # size at the start of each file that is only appended to
        self.lost: dict[str, None] = {}  # changed, and too large or impossible to keep
        self.removed: dict[str, None] = {}  # what the program removed or moved away, its own files too
        self.looked: dict[str, None] = {}  # folders that it listed
        self.databases: dict[str, Version] = {}  # that it opened, as they were then; () for those of earlier attempts
        self.gone: dict[str, None] = {}  # what the training removed or moved that was there at its last checkpoint
        self._fresh: set[str] | None = None  # what it has made since; None before the first checkpoint
        self._read: set[str] = set()  # what it has read since without having made it, MOST of it
        self._read_before: set[str] = set()  # the same for the checkpoint before, which a kill may leave as the newest
        self.rewritten: dict[str, None] = {}  # what it has read so, and then overwritten
        self.taken: dict[str, int] = {}  # files that it removed since, by the numbers under which they are kept
        self.count = 0  # of files that were kept so
        self._counts = [0, 0]  # at the last two checkpoints
        self.roots: list[str] = []  # folders of which a restart sees the past
        self._seen: set[str] = set()
        self._linked: dict[tuple[int, int], Path] = {}
        self._real: dict[str, str] = {}  # path without links of each folder, until one of them may be another
        self._left = TOTAL
        self._hearing, self._process, self._local = False, os.getpid(), threading.local()
        self._handlers: Mapping[str, Callable[..., None]] = {
            "open": self._opening,
            "os.remove": self._removing,
            "os.rmdir": self._removing,
            "os.rename": self._renaming,
            "os.mkdir": lambda path, mode=0, fd=-1: self._making(path, fd),
            "os.link": lambda source, target, _=-1, fd=-1: self._making(target, fd),
            "os.symlink": lambda source, target, fd=-1: self._making(target, fd),
            "os.truncate": lambda path, length: self._overwriting(self._path(path)),
            "shutil.rmtree": self._removing,
            "sqlite3.connect": self._connecting,
            "os.listdir": self._listing,
            "os.scandir": self._listing,
        }
        self.names = listing.stored(folder / _LISTING)
        with contextlib.suppress(FileNotFoundError):
            for line in (folder / _JOURNAL).read_text().splitlines():
                with contextlib.suppress(ValueError):  # the last line, at which the process was killed
                    self._remember(*json.loads(line))

    @property
    def recorded(self) -> bool:
        """Return True if the start of the program has been recorded."""
        return bool(self.roots) and self._uid in self.uids

    def begin(self) -> None:
        """Record that the program begins now, and follow its changes from here on."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        known = (self.created, self.made, self.later, self.missed, self.grown, self.lost, self.removed, self.looked)
        for each in (*known, self.databases, self.taken, self.uids, self._seen, self._linked):
            each.clear()
        self.roots.clear()
        self.count, self._counts = 0, [0, 0]
        self._say("uids", self._uid)
        self._say("roots", self.cwd)
        self.in_setup = True
        self.names = listing.listed(self.cwd, self.skips)
        if self.names is not None:
            listing.store(self.names, self.folder / _LISTING)
        self.follow()

    def follow(self) -> None:
        """Follow the program's changes from now on, if its start was recorded; a hook cannot be removed."""
        if self.recorded and not self._hearing:
            native_opens.tell()
            get, hear = self._handlers.get, self._hear

            def heard(event: str, arguments: tuple[Any, ...]) -> None:  # a method takes three times as long to call
                if (handler := get(event)) is not None:
                    hear(handler, arguments)

            sys.addaudithook(heard)
            self._hearing = True

    def hidden(self) -> list[str]:
        """Return the paths of what has been created since the start; a folder stands for all that is in it."""
        here = set(self.created)
        if self.names is not None:
            here |= {os.path.join(self.cwd, each) for each in listing.entries(self.cwd, self.skips, self.names)}
        there = [path for path in sorted(here) if os.path.lexists(path)]
        return [path for path in there if not any(parent in here for parent in parents(path))]

    def kept(self, root: str) -> Path:
        """Return the folder with what has been kept of the folder `root`."""
        return self.folder / _KEPT / str(self.roots.index(root))

    def named(self, path: str) -> bool:
        """Return True if there was a file at `path` when the program began."""
        return self.names is not None and os.path.relpath(path, self.cwd) in self.names

    def acts(self) -> str:
        """Return what the program has done that goes otherwise among the files that it leaves; "" for nothing."""
        acts = (("removes or moves", self.removed), ("lists", self.looked))
        return " and ".join(f"{act} {self.shown(next(iter(paths)))}" for act, paths in acts if paths)

    def shown(self, path: str) -> str:
        """Return a path as the user knows it: relative to the working folder, if it is in there."""
        return os.path.relpath(path, self.cwd) if _within(f"{path}/", self.cwd) else path

    def skips(self, path: str) -> bool:
        """Return True for a path that stays as it is today: hidden, bytecode, a cache or a folder of the job."""
        name = path.rpartition("/")[2]
        return name.startswith(".") or name == "__pycache__" or path in self._caches

    def covers(self, path: str) -> bool:
        """Return True for a path of which the record tells: that of a file which the program may have as a result."""
        place = os.path.dirname(path)
        return place not in ("/", self._temporary) and is_result(path, self.cwd, self._caches) and not self.skips(path)

    def misses(self, path: str) -> None:
        """Record that the program has looked for a file which is not there, if it is in its setup."""
        if self.in_setup and path not in self.missed and len(self.missed) < MOST:
            self._hear(self._say, ("missed", path))

    def at_checkpoint(self) -> None:
        """Record that a checkpoint is taken now: what is there now, a restart expects to find."""
        self._fresh = set()
        self._read, self._read_before = set(), self._read
        for number in range(self._counts[0], self._counts[1]):
            with contextlib.suppress(OSError):
                os.remove(self._taken_at(number))
        self._counts = [self._counts[1], self.count]

    def bring_back(self, count: int) -> None:
        """Bring back the files that the training has removed since its checkpoint, at which `count` had been kept."""
        for path, number in self.taken.items():
            if number >= count and not os.path.lexists(path):
                with contextlib.suppress(OSError):
                    os.rename(self._taken_at(number), path)

    # Heard from the audit hook

    def _hear(self, handler: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if getattr(self._local, "busy", False):
            return
        self._local.busy = True
        try:
            if os.getpid() == self._process:
                handler(*arguments)
        except Exception:  # what is not kept is not restored, and must not reach the program
            pass
        finally:
            self._local.busy = False

    def _opening(self, file: Any, mode: Any, flags: Any) -> None:
        if not isinstance(flags, int) or not isinstance(file, str | bytes | os.PathLike):
            return
        if not flags & _WRITES or (flags & os.O_RDWR and not flags & os.O_TRUNC):
            self._reads(file)
        if flags & _WRITES:
            path = self._path(file)
            if flags & os.O_APPEND and not flags & os.O_TRUNC:
                self._growing(path)
            else:
                self._overwriting(path)
                self._makes(path)

    def _removing(self, path: Any, fd: Any = None, moves: bool = False) -> None:
        there = self._path(path, -1 if fd is None else fd)
        self._real.clear()
        self._touch(there)
        if self._fresh is not None and there not in self._fresh and self.covers(there) and os.path.lexists(there):
            self._takes(there, moves)
        if there not in self.removed and self.covers(there) and os.path.lexists(there):
            self._say("removed", there)

    def _renaming(self, source: Any, target: Any, source_fd: int = -1, target_fd: int = -1) -> None:
        self._removing(source, source_fd, moves=True)
        self._making(target, target_fd)

    def _takes(self, path: str, moves: bool) -> None:
        """Keep a file that was there at the last checkpoint, as it is removed; record what cannot be kept as gone."""
        if not moves and not os.path.isdir(path):
            with contextlib.suppress(OSError):  # on another disk
                self._taken_at(self.count).parent.mkdir(exist_ok=True)
                os.link(path, self._taken_at(self.count), follow_symlinks=False)
                self._say("taken", path, self.count)
                return
        if len(self.gone) < MOST:
            self.gone[path] = None

    def _taken_at(self, number: int) -> Path:
        return self.folder / "taken" / str(number)

    def _reads(self, file: str | bytes | os.PathLike[Any]) -> None:
        if self._fresh is not None and len(self._read) < MOST and (path := self._path(file)) not in self._fresh:
            self._read.add(path)

    def _rewrites(self, path: str) -> None:
        """Record a file that is overwritten after it was read: a restart would read what is written now."""
        read = path in self._read or path in self._read_before
        if read and path not in (self._fresh or ()) and self.covers(path):
            self.rewritten[path] = None

    def _making(self, path: Any, fd: int) -> None:
        self._touch(there := self._path(path, fd))
        self._rewrites(there)
        self._makes(there)

    def _makes(self, path: str) -> None:
        if self._fresh is not None and len(self._fresh) < MOST:
            self._fresh.add(path)

    def _connecting(self, database: Any) -> None:
        if file := file_of(database):
            path = self._path(file)
            self._overwriting(path)
            if self.covers(path) and path not in self.databases:
                self._say("databases", path)
                self.databases[path] = version(path)

    def _listing(self, path: Any) -> None:
        if not self.in_setup or path is None or isinstance(path, int):
            return
        if not sys._getframe(3).f_code.co_filename.startswith("<frozen importlib"):
            folder = os.path.realpath(os.fsdecode(path))
            if folder not in self.looked and (folder == self.cwd or self.covers(folder)) and len(self.looked) < MOST:
                self._say("looked", folder)

    def _touch(self, path: str) -> None:
        """Keep the file or folder at `path` by links, as it is about to be removed, moved or replaced."""
        if not self._first(path):
            return
        if os.path.isdir(path) and not os.path.islink(path):
            self._kept_at(path).mkdir(parents=True, exist_ok=True)
            for name in os.listdir(path):
                self._touch(os.path.join(path, name))
        else:
            self._keep(path, self._link)

    def _overwriting(self, path: str) -> None:
        """Keep a copy of the file at `path`, which is about to be written in place."""
        self._rewrites(path)
        if self._linked and os.path.exists(path):
            self._unlink(os.stat(path))
        if self._first(path) and os.path.isfile(path):
            self._keep(path, self._copy)

    def _growing(self, path: str) -> None:
        if path not in self._seen and path not in self.grown and self._first(path):
            self._seen.discard(path)  # it may be written otherwise later
            self._say("grown", path, os.path.getsize(path))

    def _first(self, path: str) -> bool:
        """Return True if this is the first change of a file that was there at the start; record one that was not."""
        if path in self._seen or not self.covers(path):
            return False
        self._seen.add(path)
        if not any(_within(path, each) for each in self.roots) and os.path.isdir(parent := os.path.dirname(path)):
            self._say("roots", parent)
        if os.path.lexists(path):
            return self._was(path)
        if self.names is None or not _within(path, self.cwd):
            self._say("created", path)
        elif self.in_setup:
            self._say("made", path)
        elif len(self.later) < MOST:
            self._say("later", path)
        return False

    # What is kept

    def _was(self, path: str) -> bool:
        """Return True if the file at `path` was there at the start, as far as is known."""
        if self.names is not None and _within(path, self.cwd):
            return os.path.relpath(path, self.cwd) in self.names
        return not any(each in self.created for each in (path, *parents(path)))

    def _kept_at(self, path: str) -> Path:
        root = max((each for each in self.roots if _within(path, each)), key=len)
        return self.kept(root) / os.path.relpath(path, root)

    def _keep(self, path: str, by: Callable[[str, Path], None]) -> None:
        there = self._kept_at(path)
        if not os.path.lexists(there):  # else an earlier attempt has kept it
            there.parent.mkdir(parents=True, exist_ok=True)
            by(path, there)

    def _link(self, path: str, there: Path) -> None:
        try:
            os.link(path, there, follow_symlinks=False)
        except OSError:  # on another disk
            self._copy(path, there)
            return
        known = os.lstat(path)
        self._linked[known.st_dev, known.st_ino] = there

    def _unlink(self, known: os.stat_result) -> None:
        """Replace what was kept by a link by a copy: the program writes the file, which it has moved, in place."""
        there = self._linked.pop((known.st_dev, known.st_ino), None)
        if there is not None:
            aside = there.with_name(f"{there.name}.copied")
            shutil.copy2(there, aside)
            aside.replace(there)

    def _copy(self, path: str, there: Path) -> None:
        size = os.lstat(path).st_size
        if os.path.islink(path):
            os.symlink(os.readlink(path), there)
        elif not _cloned(path, there):
            if size > min(LARGEST, self._left):
                there.unlink(missing_ok=True)
                self._say("lost", path)
                return
            self._left -= size
            shutil.copy2(path, there)

    def _path(self, path: Any, fd: int = -1) -> str:
        """Return an absolute path without links, but for that of the file itself."""
        text = os.fsdecode(path)
        if fd >= 0:
            text = os.path.join(os.readlink(f"/proc/self/fd/{fd}"), text)
        folder, name = os.path.split(os.path.abspath(text))
        if folder not in self._real:
            self._real[folder] = os.path.realpath(folder)
        return os.path.join(self._real[folder], name)

    def _say(self, *words: Any) -> None:
        self._remember(*words)
        with (self.folder / _JOURNAL).open("a") as file:
            file.write(json.dumps(words) + "\n")

    def _remember(self, what: str, path: str, size: int = 0) -> None:
        known = getattr(self, what)
        if what == "taken":
            known[path], self.count = size, size + 1
        elif what == "roots":
            known.append(path)
        else:
            known[path] = {"grown": size, "databases": ()}.get(what)


def _cloned(path: str, there: Path) -> bool:
    """Copy a file by sharing its blocks; return False if the file system cannot."""
    try:
        with open(path, "rb") as source, there.open("wb") as target:
            fcntl.ioctl(target, _FICLONE, source.fileno())
    except OSError:
        return False
    shutil.copystat(path, there)
    return True


def parents(path: str) -> list[str]:
    """Return the folders around a path, the nearest first."""
    found = []
    while (path := os.path.dirname(path)) not in ("/", ""):
        found.append(path)
    return found


def _within(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
