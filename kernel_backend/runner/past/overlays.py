"""Show this process the user's files as they were when its program began, until the program is at its checkpoint.

A restarted program runs again from its top. Meanwhile its folders are overlays, in a mount namespace of this process:
what was created since the start is hidden, what was removed or overwritten since is there again, and whatever the
program does to its files is dropped when it comes to its checkpoint. Then the real folders take their place.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from kernel_backend.runner.past import isolation, namespace
from kernel_backend.runner.past.databases import Databases
from kernel_backend.runner.past.in_place import fd_info, opened_for_writing
from kernel_backend.runner.past.record import Past

_NOT_AGAIN = os.O_CREAT | os.O_TRUNC | os.O_EXCL


class Overlays:
    """Overlays over the folders of a program, which show their past; the process must have a single thread."""

    def __init__(self, past: Past, folder: Path) -> None:
        """Set up for the folders recorded in `past`; what the program changes is put in `folder` meanwhile."""
        self._past, self._folder = past, folder
        self._roots = sorted(filter(os.path.isdir, past.roots), key=len)
        self._real: dict[str, int] = {}
        self._through: dict[str, int] = {}  # folders and large files that stay as they are today
        self._mounted: dict[int, str] = {}  # folder of each overlay, by the number of its mount
        self._number = 0
        self._databases = Databases()
        self._shown = False
        self._apart = False  # what is shown is never the real one

    def why_not(self) -> str:
        """Return why this process cannot be shown the past, "" if it can; tried in a forked process."""
        try:
            return namespace.works(lambda: Overlays(self._past, self._folder / "tried").begin())
        except OSError as error:
            return str(error)
        finally:
            _remove(self._folder / "tried")

    def begin(self, scratch: Path | None = None) -> None:
        """Show the folders as they were when the program began.

        With a folder `scratch` nothing outside this process changes, now or later: for a rehearsal.
        """
        namespace.enter() if scratch is None else isolation.enter()
        self._real = {each: os.open(each, os.O_PATH) for each in self._roots}
        if scratch is not None:
            isolation.shadow(scratch)
            self._apart = True
        paths = {
            *self._past.own,
            *self._past.lost,
            *(path for each in self._roots for path in namespace.mounts_below(each)),
        }
        for path in sorted(paths - {*self._roots}, key=len):
            if any(path.startswith(f"{each}/") for each in self._roots) and os.path.lexists(path):
                self._through[path] = os.open(path, os.O_PATH)
        try:
            self._choose_folder()
            self._mount(self._past.hidden(), self._past.kept)
            self._cut(self._past.grown)
        except BaseException:
            self._unmount()
            raise
        self._databases.follow()
        os.rename, os.replace = self._moving(os.rename), self._moving(os.replace)

    def advance(self, hidden: Collection[str], sizes: Mapping[str, int]) -> None:
        """Show the folders as they are, without the files `hidden`; longer files end after `sizes` bytes.

        The program has come to a loop whose state is known, on its way to its checkpoint.
        """
        self._unmount()
        self._mount([each for each in hidden if os.path.lexists(each)])
        self._cut(sizes)

    def end(self) -> None:
        """Put the real folders in their place, and connect files that are open for writing, and databases, to them."""
        databases = self._databases.closed()
        self._unmount()
        written = self._written()
        for made, path in self._of_other_names({path for _, path, _ in written}):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copy2(made, path)
        for fd, path, flags in written:
            with contextlib.suppress(OSError):  # there is no such file: the program's files are known by their order
                _connect(fd, os.open(path, flags & ~_NOT_AGAIN))
        for each in (*self._real.values(), *self._through.values()):
            os.close(each)
        with contextlib.suppress(OSError):
            namespace.detach(str(self._folder))
        _remove(self._folder)
        importlib.invalidate_caches()
        databases.open()

    def _choose_folder(self) -> None:
        """Make the folder for changes; among temporary files if it would lie in a folder of the program.

        An overlay's changes cannot be in what it shows. Where the disk cannot hold them, memory does.
        """
        if self._shows(self._folder):
            name = f"daylight-replay-{os.geteuid()}-{blake2b(bytes(self._folder), digest_size=8).hexdigest()}"
            self._folder = Path(tempfile.gettempdir()).resolve() / name
        _remove(self._folder)
        self._folder.mkdir(mode=0o700, parents=True)
        if self._shows(self._folder) or not _holds_overlays(self._folder):
            namespace.memory(self._folder)

    def _shows(self, folder: Path) -> bool:
        return any(str(folder.resolve()).startswith(f"{each}/") for each in self._roots)

    def _mount(self, hidden: Sequence[str], kept: Callable[[str], Path] | None = None) -> None:
        self._number += 1
        for root in self._roots:
            upper = self._folder / f"{self._number}.{self._roots.index(root)}"
            self._hide(root, hidden, upper / "upper")
            below = [kept(root)] if kept is not None and kept(root).is_dir() else []
            if below and self._shows(below[0]):
                shutil.copytree(below.pop(), upper / "upper", symlinks=True, dirs_exist_ok=True)
            lower = [*(os.open(each, os.O_PATH) for each in below), self._real[root]]
            try:
                namespace.overlay(lower, upper, root)
            finally:
                for each in lower[:-1]:
                    os.close(each)
            self._mounted[_mount_of(root)] = root
        for path, fd in self._through.items():
            namespace.bind(fd, path)
        os.chdir(os.getcwd())
        self._shown = True

    def _unmount(self) -> None:
        folder, self._shown = os.getcwd(), False
        for root in reversed(self._roots):
            if _mount_of(root) in self._mounted:
                namespace.detach(root)
        with contextlib.suppress(OSError):  # the program is in a folder that it makes later
            os.chdir(folder)

    def _hide(self, root: str, hidden: Sequence[str], upper: Path) -> None:
        """Put a mark in the upper folder of an overlay, for each file or folder in `hidden`, that there is none."""
        upper.mkdir(parents=True)
        shutil.copystat(root, upper)
        for path in hidden:
            if max((each for each in self._roots if path.startswith(f"{each}/")), key=len, default="") != root:
                continue
            there, source = upper, root
            *folders, name = os.path.relpath(path, root).split("/")
            for each in folders:
                there, source = there / each, os.path.join(source, each)
                if not there.exists():
                    there.mkdir()
                    shutil.copystat(source, there)
            os.mknod(there / name, 0o020000, 0)  # the kernel's mark of an overlay

    def _cut(self, sizes: Mapping[str, int]) -> None:
        for path, size in sizes.items():
            with contextlib.suppress(OSError):
                if os.path.getsize(path) > size:
                    os.truncate(path, size)

    def _moving(self, real: Callable[..., None]) -> Callable[..., None]:
        """Wrap `os.rename`, so that it moves folders, too: an overlay refuses that, as another disk does."""

        def renames(source: Any, target: Any, **named: Any) -> None:
            try:
                real(source, target, **named)
            except OSError as error:
                if not (self._shown or self._apart) or error.errno != errno.EXDEV or named or not os.path.isdir(source):
                    raise
                shutil.copytree(source, target, symlinks=True)
                shutil.rmtree(source)

        return renames

    def _of_other_names(self, written: Collection[str]) -> list[tuple[Path, str]]:
        """Return the files that a restart has made under other names than the first start, such as of the time of day.

        A library may hold the name, and open the file again. Files that are open are known by their order.
        """
        found = []
        for upper in self._folder.glob("*.*/upper"):
            root = self._roots[int(upper.parent.name.split(".")[1])]
            for made in (each for each in upper.rglob("*") if each.is_file() and not each.is_symlink()):
                path = os.path.join(root, made.relative_to(upper))
                known = path in self._past.made or path in self._past.created or path in written
                if not (known or os.path.lexists(path) or self._past.named(path)):
                    found.append((made, path))
        return found

    def _written(self) -> list[tuple[int, str, int]]:
        """Return the files of the overlays that this process has open for writing: number, path and flags of each."""
        found: list[tuple[int, str, int]] = []
        for fd, path, flags, mount in opened_for_writing():
            if (root := self._mounted.get(mount)) is not None:
                found.append((fd, root + path, flags))
        # What another process knows of a database's write-ahead log cannot be exchanged.
        logs = {path for _, path, _ in found if path.endswith(("-wal", "-shm"))}
        return [each for each in found if each[1] not in logs and f"{each[1]}-wal" not in logs]


def _holds_overlays(folder: Path) -> bool:
    """Return True if the file system of a folder can hold the changes of an overlay."""
    try:
        os.setxattr(folder, "user.overlay.tried", b"")
        os.mknod(folder / "tried", 0o020000, 0)
    except OSError:
        return False
    (folder / "tried").unlink()
    os.removexattr(folder, "user.overlay.tried")
    return True


def _connect(fd: int, real: int) -> None:
    with contextlib.suppress(OSError):
        os.lseek(real, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
    os.dup2(real, fd, inheritable=os.get_inheritable(fd))
    os.close(real)


def _mount_of(folder: str) -> int:
    fd = os.open(folder, os.O_PATH)
    try:
        return int(fd_info(fd)["mnt_id"])
    finally:
        os.close(fd)


def _remove(folder: Path) -> None:
    """Delete the folders of overlays, in which the kernel leaves folders without permissions."""
    for each in folder.glob("*"):
        with contextlib.suppress(OSError):
            (each / "work" / "work").chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
