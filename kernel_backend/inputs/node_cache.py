"""Keep remote objects on a node's disk, each once, and build read-only folders of hard links to them.

    <root>/objects/<2 hex>/<key>         a whole object; <key>.part is one that is being downloaded
    <root>/views/<digest>/data/...       folder of hard links to the objects of one list; before one is here, a
                                         symbolic link to <root>/missing/<size>, where nothing is
    <root>/views/<digest>/whole          exists once all of them are here
    <root>/views/<digest>/checked-<digest of credentials>  when a store has last let these read all of them
    <root>/sets/<digest>/<name>          links to the views of a training, by the names of its inputs

An object is written beside its place, synced and renamed, so that a file of the cache is whole. The downloader holds a
lock on the file that it writes, so that each object is fetched once. A view is in use while any process holds its lock:
others may be removed, and then the objects to which no view links.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.cluster.input_cache import LIMIT, ROOT
from kernel_backend.model.sizes import size
from kernel_backend.model.snapshot import NODE_LINK

_FREE = 0.05  # share of the disk that stays free if no limit is set
TIME = 946_684_800  # of all files: 2000-01-01, the same on each node and after each download
_OBJECTS, _VIEWS, _SETS = "objects", "views", "sets"
MISSING = "missing"  # folder that never exists
DATA, WHOLE = "data", "whole"  # in the folder of a view
_LOCK, _SERVING = "lock", "serving"
_HELD, _MAKING, _REMOVED, _PART = "held-", "making-", "removed-", ".part"
_CHECKED = "checked-"
CHECKED_S = 600.0  # for how long it counts that a store has let credentials read all objects of a view


class CacheUse(NamedTuple):
    """Size of a node's cache, in bytes, and the part of it that no training uses now."""

    objects: int
    bytes: int
    idle: int


def cache_root(environ: Mapping[str, str]) -> Path:
    """Return the folder of this node's cache: `DAYLIGHT_CACHE`, else a folder of this user on the node's own disk."""
    return Path(environ.get(ROOT) or f"/var/tmp/daylight-cache-{os.getuid()}")


def cache_limit(environ: Mapping[str, str]) -> int | None:
    """Return the most bytes that this node's cache may hold; None: as the disk has room."""
    text = environ.get(LIMIT, "")
    try:
        return int(float(text) * 1e9) if text else None
    except ValueError:
        raise InvalidRequest(f"{LIMIT}={text}: write a number of gigabytes, such as 200") from None


def key_of(address: str, version: str, length: int) -> str:
    """Return the name in the cache of the object at an address, in one version."""
    return blake2b(f"{address}\0{version}\0{length}".encode("utf-8", "surrogateescape"), digest_size=20).hexdigest()


class NodeCache:
    """Cache of remote objects in a folder that only this user can change; any number of processes may use it."""

    def __init__(self, root: Path, limit: int | None = None) -> None:
        """Create the folder if it is missing; raise InvalidRequest if others could change what is in it.

        Below a folder in which all users may create files, such as one of mode 1777, each has a folder of their own.
        """
        self._limit = limit
        try:
            self.root = root = _of_user(root)
            for name in (_OBJECTS, _VIEWS, _SETS):
                (root / name).mkdir(exist_ok=True)
        except OSError as error:
            raise InvalidRequest(f"{root}: {error.strerror or error}: set {ROOT} to a folder for remote data") from None

    @contextlib.contextmanager
    def leased(self, digest: str) -> Iterator[View]:
        """Hold a view during the block, so that nobody removes it or its objects."""
        folder = self.root / _VIEWS / digest
        while True:
            lock = _opened(folder)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if _is_still(lock, folder / _LOCK):
                break
            os.close(lock)  # removed meanwhile
        try:
            os.utime(lock)
            yield View(folder, self.root)
        finally:
            os.close(lock)

    def join(self, digest: str, views: Mapping[str, Path]) -> Path:
        """Make a folder with a link to each of these files or folders of views, by name; return it."""
        place = self.root / _SETS / digest
        place.mkdir(exist_ok=True)
        for name, target in views.items():
            link = place / name
            link.parent.mkdir(parents=True, exist_ok=True)  # a name may be a path, as ./data/images
            making = link.with_name(f".{link.name}.{secrets.token_hex(8)}")
            making.symlink_to(target)
            making.replace(link)
        return place

    def make_room(self, needed: int) -> int:
        """Remove data that no training uses, the longest unused first, until `needed` more bytes fit.

        Returns how many more bytes fit then, which may be fewer.
        """
        views = sorted(self._views(), key=_used_at, reverse=True)
        while (room := self._room()) < needed and views:
            self._forget(views.pop())
            self._sweep()
        return max(0, room)

    def too_small(self, needed: int, room: int) -> InvalidRequest:
        """Return the error that `needed` more bytes do not fit into the room that there is."""
        limit = f"{LIMIT} allows" if self._limit is not None else "its disk has room for"
        return InvalidRequest(
            f"{size(needed)} of the data are not on this node, and {limit} {size(room)} more in {self.root}: set "
            f"{ROOT} to a folder on a larger disk, or name less data"
        )

    def clean(self) -> int:
        """Remove all data that no training uses; return how many bytes that were."""
        before = self.use().bytes
        for view in self._views():
            self._forget(view)
        self._sweep()
        return before - self.use().bytes

    def use(self) -> CacheUse:
        """Return how much is here, and how much of it no training uses now."""
        idle_views = [view for view in self._views() if not _in_use(view)]
        links: dict[int, int] = {}
        for view in idle_views:
            for at, _, files in os.walk(view):
                for file in files:
                    inode = os.lstat(os.path.join(at, file)).st_ino
                    links[inode] = links.get(inode, 0) + 1
        found = [status for _, status in self._objects()]
        idle = sum(each.st_size for each in found if each.st_nlink - 1 <= links.get(each.st_ino, 0))
        return CacheUse(len(found), sum(each.st_size for each in found), idle)

    def _room(self) -> int:
        disk = os.statvfs(self.root)
        free = disk.f_bavail * disk.f_frsize
        if self._limit is None:
            return free - int(disk.f_blocks * disk.f_frsize * _FREE)
        return min(free, self._limit - sum(status.st_size for _, status in self._objects()))

    def _forget(self, view: Path) -> None:
        """Remove a view unless it is in use."""
        with contextlib.suppress(FileNotFoundError), _locked(view / _LOCK, wait=False) as lock:
            if lock is not None:
                removed = self.root / f"{_REMOVED}{secrets.token_hex(8)}"
                view.rename(removed)  # at once, so that nobody finds a part of it
                _remove(removed)

    def _sweep(self) -> None:
        """Remove the objects to which no view links, what killed downloads left, and sets whose views are gone."""
        for path, status in self._objects():
            if status.st_nlink == 1:
                path.unlink(missing_ok=True)
        for part in (self.root / _OBJECTS).glob(f"*/*{_PART}"):
            with contextlib.suppress(FileNotFoundError), _locked(part, wait=False) as lock:
                if lock is not None:
                    part.unlink(missing_ok=True)
        for each in self.root.glob(f"{_REMOVED}*"):  # by a process that was killed
            _remove(each)
        for each in Path(NODE_LINK).parent.glob(f"{Path(NODE_LINK).name}*"):
            if each.is_symlink() and not each.exists():
                with contextlib.suppress(OSError):  # another user's
                    each.unlink()
        for each in (self.root / _SETS).iterdir():
            if not all(link.exists() for link in each.rglob("*")):
                _remove(each)

    def _objects(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in (self.root / _OBJECTS).glob("*/*"):
            if path.suffix != _PART:
                with contextlib.suppress(FileNotFoundError):
                    yield path, path.lstat()

    def _views(self) -> list[Path]:
        return list((self.root / _VIEWS).iterdir())


class View:
    """Folder with the objects of one list, which this process holds.

    It has an entry for each object from the beginning: a hard link to one that is here, and for others a symbolic link
    to nothing whose name is the object's size. One process at a time, which is `serving`, replaces these entries.
    """

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self._objects, self._missing = folder, cache / _OBJECTS, cache / MISSING
        self._token = secrets.token_hex(8)  # not a number of a process, which another pod may have, too
        self._held = folder / f"{_HELD}{self._token}"

    @property
    def data(self) -> Path:
        """Return the folder that trainings read, which exists once `lay` has made it."""
        return self.folder / DATA

    @property
    def whole(self) -> bool:
        """Return whether all objects are here, and stay."""
        return (self.folder / WHOLE).exists()

    @contextlib.contextmanager
    def serving(self) -> Iterator[bool]:
        """Become the one process that changes the view, during the block; False if another one is."""
        with _locked(self.folder / _SERVING, wait=False) as lock:
            yield lock is not None

    def lay(self, sizes: Mapping[str, int]) -> set[str]:
        """Make the folder, with the sizes of objects in bytes by their paths below it; return the paths of those here.

        Raises InvalidRequest if two paths exclude each other, as `a` and `a/b` do.
        """
        for left in (*self.folder.glob(f"{_HELD}*"), *self.folder.glob(f"{_MAKING}*")):
            _remove(left)  # by a process that was killed
        if not self.data.exists():
            making = self.folder / f"{_MAKING}{self._token}"
            making.mkdir()
            try:
                self._lay(sizes, making)
                os.rename(making, self.data)
            finally:
                _remove(making)
        return {name for name in sizes if not (self.data / name).is_symlink()}

    def is_checked(self, credentials: str) -> bool:
        """Return whether these credentials could read all objects a short time ago; "" are unknown ones."""
        with contextlib.suppress(OSError):
            passed = time.time() - (self.folder / f"{_CHECKED}{credentials}").stat().st_mtime
            return bool(credentials) and 0 <= passed < CHECKED_S
        return False

    def note_checked(self, credentials: str) -> None:
        """Note that a store has let these credentials read all objects now."""
        if credentials:
            (self.folder / f"{_CHECKED}{credentials}").touch()

    def has(self, key: str) -> bool:
        """Return whether an object is on this node."""
        return self._object(key).exists()

    def take(self, name: str, key: str) -> bool:
        """Give an object that is on this node its place in the view; return False if it is not there."""
        if not self._hold(self._object(key), key):
            return False
        os.rename(self._held / key, self.data / name)
        return True

    def fetch(self, name: str, key: str, length: int, download: Callable[[int], None], wait: bool = True) -> bool:
        """Bring an object here by `download`, which writes to a descriptor; return False if another process does so.

        With `wait`, the other process is waited for. A download that fails, or has another size, leaves nothing.
        """
        place = self._object(key)
        place.parent.mkdir(exist_ok=True)
        part = place.with_suffix(_PART)
        with _locked(part, wait) as file:
            if file is None:
                return False
            try:
                if not self.take(name, key):
                    os.ftruncate(file, 0)
                    download(file)
                    if (found := os.fstat(file).st_size) != length:
                        raise InvalidRequest(f"{found} of {length} bytes of an object arrived: its store is at fault")
                    os.fchmod(file, 0o444)
                    os.utime(file, (TIME, TIME))
                    os.fsync(file)
                    self._hold(part, key)  # before it has its place, where others might take it for unused
                    os.rename(part, place)
                    os.rename(self._held / key, self.data / name)
            finally:
                part.unlink(missing_ok=True)
        return True

    def evict(self, name: str, key: str, length: int) -> None:
        """Remove an object from the view, and from the node if no other view has it; who has opened it can go on."""
        link = self._held / f"{key}.{_MAKING}"
        self._held.mkdir(exist_ok=True)
        link.symlink_to(self._missing / str(length))
        link.rename(self.data / name)
        with contextlib.suppress(FileNotFoundError):
            if (place := self._object(key)).stat().st_nlink == 1:
                place.unlink()

    def finish(self) -> None:
        """Mark the view as whole, once all objects are here."""
        _remove(self._held)
        for folder, _, _ in os.walk(self.data, topdown=False):
            os.chmod(folder, 0o555)
        (self.folder / WHOLE).touch()

    def _lay(self, sizes: Mapping[str, int], making: Path) -> None:
        folders, missing = {str(making)}, str(self._missing)
        for name, length in sizes.items():
            target = f"{making}/{name}"
            try:
                if (parent := os.path.dirname(target)) not in folders:
                    os.makedirs(parent, exist_ok=True)
                    folders.add(parent)
                os.symlink(f"{missing}/{length}", target)
            except (FileExistsError, NotADirectoryError):
                raise InvalidRequest(
                    f"{name}: the store has an object and a folder of the same name there, which a disk cannot have"
                ) from None

    def _hold(self, path: Path, key: str) -> bool:
        self._held.mkdir(exist_ok=True)
        try:
            os.link(path, self._held / key)
        except FileExistsError:
            pass
        except FileNotFoundError:
            return False
        return True

    def _object(self, key: str) -> Path:
        return self._objects / key[:2] / key


def _of_user(root: Path) -> Path:
    """Return a folder that only this user can change: `root` itself, or the user's own below a folder of all users."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    if _is_for_all(root.lstat()):
        root = root / str(os.getuid())
        root.mkdir(exist_ok=True, mode=0o700)
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & stat.S_IWOTH:
        raise InvalidRequest(
            f"the cache of remote data {root} is not a folder of yours alone: set {ROOT} to one, or to a folder of "
            "root's with mode 1777, below which each user has one"
        )
    return root


def _is_for_all(status: os.stat_result) -> bool:
    """Return whether all users may create files in a folder, and nobody but its owner may rename those of others.

    The owner must be root, or this user, as any other could put another folder in the place of a user's own.
    """
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX and status.st_mode & stat.S_IWOTH
    return bool(sticky) and status.st_uid in (0, os.getuid())


def _opened(folder: Path) -> int:
    while True:
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            return os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextlib.contextmanager
def _locked(path: Path, wait: bool) -> Iterator[int | None]:
    """Open a file, created if missing, and hold its lock during the block; None if another process holds it."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(file)
            yield None
            return
        if _is_still(file, path):
            break
        os.close(file)  # renamed or removed while this process waited
    try:
        yield file
    finally:
        os.close(file)


def _is_still(file: int, path: Path) -> bool:
    """Return whether an open file is the one that has this path now."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def _in_use(view: Path) -> bool:
    with contextlib.suppress(FileNotFoundError), _locked(view / _LOCK, wait=False) as lock:
        return lock is None
    return False


def _used_at(view: Path) -> float:
    try:
        return (view / _LOCK).stat().st_mtime
    except OSError:
        return 0.0


def _remove(folder: Path) -> None:
    """Remove a folder, whose folders may be read-only."""
    for at, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(at, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
