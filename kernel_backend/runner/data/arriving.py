"""Let code that reads an input's files wait for those that are still on their way to this node.

A file that is not here yet is a symbolic link to nothing, whose name is the file's size. Python tells of each file that
it opens by an audit hook (PEP 578), which waits here; libraries that open files natively are made to tell, too
(`native_opens`). Functions that only look at files are patched to answer as if all of them were here.
"""

from __future__ import annotations

import functools
import json
import os
import queue
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kernel_backend.errors import DaylightError, InvalidDefinition
from kernel_backend.inputs.node_cache import DATA, MISSING, TIME, WHOLE
from kernel_backend.inputs.server import Client
from kernel_backend.runner import native_opens
from kernel_backend.runner.timing.clock import CLOCK

GONE_S = 600.0  # without a process that fetches
_PAUSE_S = 0.1
_LOOK_S = 1.0
_LINKS = 40  # that a path may follow


class Arriving(NamedTuple):
    """Inputs that are on their way to this node, and the file in which the first rank of the node tells of them."""

    views: tuple[str, ...]  # folders of their views
    told: str


class _Clients(threading.local):
    """Connections of a thread, by view; those of the process from which this one was forked do not count."""

    def __init__(self) -> None:
        self.process, self.found = os.getpid(), dict[str, Client]()


_arriving: Arriving | None = None
_data: dict[str, str] = {}  # folder of files -> folder of its view
_whole: set[str] = set()  # folders of views of which all is here now
_clients = _Clients()
_waited = 0.0  # seconds
_watch: Watch | None = None
_stat, _lstat, _access, _scandir = os.stat, os.lstat, os.access, os.scandir


def begin(arriving: Arriving) -> None:
    """Let readers in this process, and in those forked from it later, wait for files of these inputs."""
    global _arriving
    hooked, _arriving = _arriving is not None, arriving
    _data.update((os.path.realpath(Path(view) / DATA), view) for view in arriving.views)
    _place.cache_clear()
    if hooked:
        return
    sys.addaudithook(_hear)
    native_opens.tell()
    for name, real, now in (
        ("stat", _stat, _stat_now),
        ("lstat", _lstat, _lstat_now),
        ("access", _access, _access_now),
        ("scandir", _scandir, _scandir_now),
    ):
        setattr(os, name, now)
        for able in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
            able |= {now} if real in able else set()


def current() -> Arriving | None:
    """Return what `begin` was called with, for a process that does not inherit it."""
    return _arriving


def watch(alive: Callable[[], None], tell: Callable[[str], None]) -> None:
    """Call `alive` from now on while readers on this node wait for files, so that this does not look like a hang.

    `tell` is called with texts on progress, and with "" once all is here.
    """
    global _watch
    assert _arriving is not None
    _watch = Watch(_arriving, alive, tell)
    _watch.start()


def expect(paths: Iterable[str]) -> None:
    """Tell which files this rank will read, in their order, after those that were told before."""
    if _watch is not None:
        _watch.expect(paths)


def waited() -> float:
    """Return the seconds for which readers of this process have waited since the last call."""
    global _waited
    found, _waited = _waited, 0.0
    return found


def is_wanted() -> bool:
    """Return whether the order in which this rank reads files is of use."""
    return _watch is not None and _watch.is_alive()


def is_coming(path: str) -> bool:
    """Return whether this is the path of a file of an input that is on its way; it may be here already."""
    return _found(path) is not None and os.path.lexists(path)


class Watch(threading.Thread):
    """Connection of a rank to what fetches: it tells what the rank will read, and asks whether readers wait."""

    def __init__(self, arriving: Arriving, alive: Callable[[], None], tell: Callable[[str], None]) -> None:
        super().__init__(name="inputs", daemon=True)
        self._arriving, self._alive, self._tell = arriving, alive, tell
        self._told: dict[str, list[list[str]]] = {view: [] for view in arriving.views}  # the newest two
        self._new: queue.SimpleQueue[Iterable[str]] = queue.SimpleQueue()
        self._clients: dict[str, Client] = {}

    def expect(self, paths: Iterable[str]) -> None:
        """Tell which files will be read, which are looked up in this thread."""
        self._new.put(paths)

    def run(self) -> None:
        """Tell and ask until all is here."""
        while left := [view for view in self._arriving.views if not _is_whole(view)]:
            names: dict[str, list[str]] = {}
            with suppress(Exception):  # of an empty queue, or of a user's dataset, which may hold anything
                for view, name in filter(None, map(_found, self._new.get(timeout=_LOOK_S))):
                    names.setdefault(view, []).append(name)
            for view in left:
                try:
                    self._ask(view, names.get(view, []))
                except OSError:  # what fetches was killed, and another one begins
                    if view in self._clients:
                        self._clients.pop(view).close()
        self._tell("")

    def _ask(self, view: str, names: list[str]) -> None:
        if names:
            self._told[view] = [*self._told[view][-1:], names]
        if (client := self._clients.get(view)) is None:
            client = self._clients[view] = Client(Path(view))
            for each in self._told[view]:
                client.expect(each)
        elif names:
            client.expect(names)
        state = client.state()
        self._tell(state.text)
        if state.waiting:
            self._alive()


def _hear(event: str, args: tuple[Any, ...]) -> None:
    global _waited
    if event == "open" and isinstance(args[0], str | bytes | os.PathLike) and (found := _found(args[0])):
        began = time.monotonic()
        with CLOCK.part("input"):
            _wait(*found)
        _waited += time.monotonic() - began


def _wait(view: str, name: str) -> None:
    """Return once a file is here; raise InvalidDefinition, with a sentence for the user, if it cannot be had."""
    deadline = time.monotonic() + GONE_S
    while not _is_whole(view):
        if _clients.process != os.getpid():
            _clients.process, _clients.found = os.getpid(), {}
        try:
            client = _clients.found.get(view)
            if client is None:
                client = _clients.found[view] = Client(Path(view))
            client.wait(name)
            return
        except DaylightError as error:
            raise InvalidDefinition(error.message) from None
        except OSError:  # it was killed, and another one begins
            if view in _clients.found:
                _clients.found.pop(view).close()
        _see_that_it_comes(deadline)
        time.sleep(_PAUSE_S)


def _see_that_it_comes(deadline: float) -> None:
    assert _arriving is not None
    with suppress(OSError, ValueError), open(_arriving.told, "rb") as file:
        if error := json.load(file).get("error"):
            raise InvalidDefinition(error)
    if time.monotonic() > deadline:
        raise InvalidDefinition("the process that fetches data is gone: the log of the node's first rank may say why")


def _is_whole(view: str) -> bool:
    if view not in _whole and os.path.lexists(os.path.join(view, WHOLE)):
        _whole.add(view)
    return view in _whole


def _found(path: str | bytes | os.PathLike[Any]) -> tuple[str, str] | None:
    """Return the view of a file that may be on its way, and its name there; None for other files."""
    name = os.path.abspath(os.fsdecode(path))
    for _ in range(_LINKS):
        folder, last = os.path.split(name)
        if (place := _place(folder)) is not None:
            view, prefix = place
            return None if view in _whole else (view, prefix + last)
        try:
            name = os.path.normpath(os.path.join(folder, os.readlink(name)))
        except OSError:
            break
    return None


@functools.lru_cache(maxsize=100_000)
def _place(folder: str) -> tuple[str, str] | None:
    """Return the view to which a folder belongs, and the beginning of the names of its files there."""
    real = os.path.join(os.path.realpath(folder), "")
    for data, view in _data.items():
        if real.startswith(f"{data}/"):
            return view, real[len(data) + 1 :]
    return None


def _missing(path: Any, *, follow: bool = True, dir_fd: int | None = None) -> os.stat_result | None:
    """Return the status that a file will have once it is here; None if it is here, or not on its way."""
    try:
        for _ in range(_LINKS if follow else 1):
            link = _lstat(path, dir_fd=dir_fd)
            folder, _, length = os.fsdecode(os.readlink(path, dir_fd=dir_fd)).rpartition("/")
            if os.path.basename(folder) == MISSING and length.isdecimal():
                return _status(link, int(length))
            path = os.path.join(os.path.dirname(os.fsdecode(path)), folder, length)
    except (OSError, TypeError):  # no link, or a descriptor
        pass
    return None


def _status(link: os.stat_result, length: int) -> os.stat_result:
    times = {f"st_{name}": float(TIME) for name in ("atime", "mtime", "ctime")}
    times |= {f"st_{name}_ns": TIME * 10**9 for name in ("atime", "mtime", "ctime")}
    mode = stat.S_IFREG | 0o444
    fields = (mode, link.st_ino, link.st_dev, 1, link.st_uid, link.st_gid, length, TIME, TIME, TIME)
    return os.stat_result(fields, times)


def _stat_now(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
    if not follow_symlinks:
        return _lstat_now(path, dir_fd=dir_fd)
    try:
        return _stat(path, dir_fd=dir_fd)
    except FileNotFoundError:
        return _missing(path, dir_fd=dir_fd) or _stat(path, dir_fd=dir_fd)  # it may be here now


def _lstat_now(path: Any, *, dir_fd: int | None = None) -> os.stat_result:
    found = _lstat(path, dir_fd=dir_fd)
    if not stat.S_ISLNK(found.st_mode):
        return found
    return _missing(path, follow=False, dir_fd=dir_fd) or _lstat(path, dir_fd=dir_fd)


def _access_now(path: Any, mode: int, *, dir_fd: int | None = None, **options: bool) -> bool:
    if _access(path, mode, dir_fd=dir_fd, **options):
        return True
    return not mode & (os.W_OK | os.X_OK) and _missing(path, dir_fd=dir_fd) is not None


class _Entry:
    """Entry of a folder whose file is on its way."""

    def __init__(self, entry: os.DirEntry[Any], status: os.stat_result) -> None:
        self.name, self.path, self._status = entry.name, entry.path, status

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        return self._status.st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return False

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return True

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._status


class _Entries:
    """Iterator over the entries of a folder, as `os.scandir` returns it."""

    def __init__(self, entries: Any) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        entry = next(self._entries)
        return (entry.is_symlink() and (status := _missing(entry.path)) and _Entry(entry, status)) or entry

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries.close()


def _scandir_now(path: Any = ".") -> Any:
    return _Entries(_scandir(path))
