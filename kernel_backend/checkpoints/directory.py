"""Store checkpoints in a folder of a file system, safe against kills, power cuts and full disks.

    <root>/<step>-<attempt>/<part>.safetensors ... manifest.json [pinned] [judged-<evaluation>]

    <root>/claim-<attempt> [follow-<evaluation>]

A file is written under a temporary name, made durable (fsync) and renamed, and its folder is made durable, so that a
file with its final name is always complete. A damaged checkpoint becomes `<step>-<attempt>.bad`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path

from kernel_backend.checkpoints.base import FROZEN, Data, Manifest, Part, QuarantinedCheckpoint, dump, parse
from kernel_backend.checkpoints.streams import Digesting, size_of, slices
from kernel_backend.checkpoints.verify import (
    ID,
    JUDGED,
    MANIFEST,
    MOST_JUDGED,
    PINNED,
    SUFFIX,
    StoredManifest,
    VerifyingCheckpoints,
    attempt_of,
    dump_values,
    fence_name,
    fences_among,
    follower_name,
    followers_among,
    judged_name,
    marks_among,
)
from kernel_backend.durable import sync_folder
from kernel_backend.errors import CheckpointDamaged, NotFound
from kernel_backend.tail import small_file

# Writing and digesting release the interpreter lock, so that training continues. Acquiring it again takes up to
# 5 ms each time, so pieces must not be small.
_PIECE = 32 * 2**20
_TEMPORARY = ".writing"
BAD = ".bad"
# Errors of file systems that cannot reserve space; there, a full disk is noticed by the write.
_NO_RESERVING = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}
# Errors that mean damaged data. Others, such as those of a lost mount, say nothing about the bytes.
_BROKEN = {errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.ENXIO, errno.EFBIG}
MOST_MANIFEST = 64 * 2**20  # bytes


class Directory(VerifyingCheckpoints):
    """Checkpoints of one trial in the folder `root`, which is created with the first checkpoint."""

    def __init__(self, root: Path, uid: str | None = None) -> None:
        super().__init__(uid)
        self._root = root
        self._written: dict[tuple[int, str], Path] = {}  # frozen parts written by this process, by size and digest

    @property
    def where(self) -> str:
        """Return the path of the folder with the checkpoints."""
        return str(self._root)

    def free(self) -> int:
        """Return the free space of the file system in bytes."""
        folder = next(each for each in (self._root, *self._root.absolute().parents) if each.is_dir())
        return shutil.disk_usage(folder).free

    def write(self, checkpoint: str, name: str, data: Data) -> Part:
        """Store one part durably; on failure delete its file and raise OSError.

        A full disk is detected before anything is written.
        """
        make_folder(self._root / checkpoint)
        path = self._root / checkpoint / f"{name}{SUFFIX}"
        part = _replace(path, data).part(name)
        if name.endswith(FROZEN):
            self._written[part.size, part.digest] = path
        return part

    def reuse(self, checkpoint: str, part: Part) -> bool:
        """Store a part as a hard link to a file with the same bytes in another checkpoint of the experiment.

        Returns False if there is no such file.
        """
        make_folder(self._root / checkpoint)
        target = self._root / checkpoint / f"{part.name}{SUFFIX}"
        for source in self._same(part):
            with contextlib.suppress(OSError):  # it is being deleted, or this file system has no hard links
                _link(source, target)
                self._written[part.size, part.digest] = target
                return True
        return False

    def commit(self, manifest: Manifest) -> None:
        """Write the manifest last: its rename commits the checkpoint."""
        make_folder(self._root / manifest.id)
        _replace(self._root / manifest.id / MANIFEST, [dump(manifest)])

    def set_aside(self, checkpoint: str) -> None:
        """Rename a checkpoint's folder to `<name>.bad`, so that it is not listed; an older `<name>.bad` is replaced."""
        if not (self._root / checkpoint).exists():
            return
        bad = self._root / f"{checkpoint}{BAD}"
        shutil.rmtree(bad, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            (self._root / checkpoint).rename(bad)
            sync_folder(self._root)

    def aside(self) -> list[QuarantinedCheckpoint]:
        """Return the quarantined checkpoints: the folders `<name>.bad`."""
        return [
            # The rename was the folder's last change.
            QuarantinedCheckpoint(each.name, sum(file.stat().st_size for file in each.iterdir()), each.stat().st_ctime)
            for each in sorted(self._entries())
            if each.suffix == BAD and each.is_dir()
        ]

    def discard(self, checkpoint: str) -> None:
        """Delete a checkpoint, committed or not, unless it is pinned or awaits an evaluation.

        The manifest is deleted first, so that a half-deleted checkpoint is not a committed one.
        """
        folder = self._root / checkpoint
        if not checkpoint.endswith(BAD) and self._is_retained(folder):
            return  # it was pinned after the caller has listed it
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (folder / MANIFEST).unlink()
        shutil.rmtree(folder, ignore_errors=True)

    def sweep(self, attempt: int) -> None:
        """Delete uncommitted checkpoints of attempts before number `attempt`, which have ended."""
        for folder in self._folders():
            if attempt_of(folder.name) < attempt and not self._has_manifest(folder.name):
                shutil.rmtree(folder, ignore_errors=True)

    def clear(self) -> None:
        """Delete the fences (files `claim-<attempt>`, see `fence`) if the trial's folder has no other entries.

        Marks of evaluations are deleted, too, and then the folders of the trial and of its experiment, if they are
        empty.
        """
        names = self.names()
        marks = marks_among(names)
        if len(marks) == len(names):
            for name in marks:
                (self._root / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty, or missing
            self._root.rmdir()
            self._root.parent.rmdir()

    def pin(self, checkpoint: str, pinned: bool) -> None:
        """Pin or unpin a checkpoint: create or remove the empty file `pinned` next to its manifest; raise NotFound."""
        if not self._has_manifest(checkpoint):
            raise NotFound(f"there is no checkpoint {checkpoint} in {self._root}")
        marker = self._root / checkpoint / PINNED
        if pinned:
            _replace(marker, [])
        else:
            marker.unlink(missing_ok=True)
            sync_folder(marker.parent)

    def follow(self, by: int, follows: bool) -> None:
        """Mark the trial as followed by the evaluation `by` (an empty file), or remove the mark; raise OSError."""
        mark = self._root / follower_name(by)
        if follows:
            make_folder(self._root)
            _touch(mark)
        else:
            mark.unlink(missing_ok=True)

    def judge(self, checkpoint: str, by: int, metrics: Mapping[str, float]) -> None:
        """Write what the evaluation `by` has measured to a file next to the checkpoint's manifest; raise NotFound."""
        if not self._has_manifest(checkpoint):
            raise NotFound(f"there is no checkpoint {checkpoint} in {self._root}")
        _replace(self._root / checkpoint / judged_name(by), [dump_values(metrics)])

    def names(self) -> list[str]:
        """Return the names of all entries in the trial's folder: checkpoints, fences and others; raise OSError."""
        return [each.name for each in self._entries()]

    def fence(self, attempt: int) -> None:
        """Fence older attempts, whose new checkpoints are then ignored; raise OSError.

        Creates the file `claim-<attempt>` and removes the files of older attempts.
        """
        make_folder(self._root)
        _touch(self._root / fence_name(attempt))
        with contextlib.suppress(OSError):  # obsolete
            for older in fences_among(self.names()):
                if older < attempt:
                    (self._root / fence_name(older)).unlink(missing_ok=True)

    def _manifests(self) -> Iterator[StoredManifest]:
        for folder in self._folders():
            try:
                data = small_file(folder / MANIFEST, MOST_MANIFEST)
            except FileNotFoundError:
                continue  # still being written, or left by a dead rank
            except OSError as error:
                if error.errno not in _BROKEN:
                    raise
                data = b""  # unreadable; an empty text is reported as damaged
            beside = set(os.listdir(folder)) if folder.is_dir() else set[str]()
            judged = {int(found[1]): folder / name for name in beside if (found := JUDGED.fullmatch(name))}
            values = {by: _small(path) for by, path in judged.items()}
            yield StoredManifest(folder.name, data, PINNED in beside, values)

    def _stream(self, checkpoint: str, name: str, offset: int = 0) -> Iterator[memoryview]:
        yield from _pieces(self._part(checkpoint, name), offset)

    def _whole(self, checkpoint: str, name: str) -> bytes:
        with _readable(self._part(checkpoint, name)) as file:
            return file.read()

    def _same(self, part: Part) -> Iterator[Path]:
        """Yield files of the experiment's checkpoints that have the same bytes as a part.

        First comes a file that this process wrote, then frozen parts of other checkpoints, after verifying them.
        """
        own = self._written.get((part.size, part.digest))
        if own is not None and _size(own) == part.size:
            yield own
        for path in sorted(self._root.parent.glob(f"*/*/*{FROZEN}{SUFFIX}"), reverse=True):
            if _size(path) == part.size and ID.fullmatch(path.parent.name):
                with contextlib.suppress(OSError, CheckpointDamaged):
                    parts = parse(small_file(path.parent / MANIFEST, MOST_MANIFEST)).parts
                    same = any(f"{each.name}{SUFFIX}" == path.name and each.digest == part.digest for each in parts)
                    if same and _digest(path) == part.digest:
                        yield path

    def _has_manifest(self, checkpoint: str) -> bool:
        return (self._root / checkpoint / MANIFEST).exists()

    def _is_retained(self, folder: Path) -> bool:
        if not (folder / MANIFEST).exists():
            return False
        awaited = any(not (folder / judged_name(by)).exists() for by in followers_among(self.names()))
        return awaited or (folder / PINNED).exists()

    def _part(self, checkpoint: str, name: str) -> Path:
        return self._root / checkpoint / f"{name}{SUFFIX}"

    def _folders(self) -> Iterator[Path]:
        yield from (each for each in self._entries() if ID.fullmatch(each.name))

    def _entries(self) -> list[Path]:
        with contextlib.suppress(FileNotFoundError):
            return list(self._root.iterdir())
        return []


def _pieces(path: Path, offset: int = 0) -> Iterator[memoryview]:
    with _readable(path) as file:
        size = os.fstat(file.fileno()).st_size - offset
        buffer = memoryview(bytearray(min(max(size, 1), _PIECE)))  # filling 32 MiB with zeros takes 20 ms
        file.seek(offset)
        while count := file.readinto(buffer):
            yield buffer[:count]


def _digest(path: Path) -> str:
    seen = Digesting()
    for piece in _pieces(path):
        seen.take(piece)
    return seen.digest


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[FileIO]:
    try:
        with open(path, "rb", buffering=0) as file:
            yield file
    except OSError as error:
        if error.errno in _BROKEN:
            raise CheckpointDamaged(f"{path} cannot be read: {error.strerror}") from None
        raise


def _replace(path: Path, data: Data) -> Digesting:
    """Write `data` to `path` durably and atomically; return the digest and the size of its bytes.

    Raises OSError, and then leaves no file.
    """
    temporary = path.with_name(path.name + _TEMPORARY)
    written = Digesting()
    try:
        with open(temporary, "wb", buffering=0) as file:
            _reserve(file.fileno(), size_of(data))
            for piece in slices(data, _PIECE):
                _write(file.fileno(), piece)
                written.take(piece)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    try:
        sync_folder(path.parent)
    except OSError:
        path.unlink(missing_ok=True)  # a failed write must not appear later
        raise
    return written


def _link(source: Path, target: Path) -> None:
    """Create the hard link `target` to the file `source`, durably and atomically.

    Raises OSError, and then leaves no new file.
    """
    temporary = target.with_name(target.name + _TEMPORARY)
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
        os.replace(temporary, target)
        sync_folder(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        raise


def _size(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return None


def _small(path: Path) -> bytes:
    try:
        return small_file(path, MOST_JUDGED)
    except OSError:  # it is being deleted, or not readable: then the checkpoint counts as judged, without values
        return b""


def _touch(path: Path) -> None:
    """Create an empty file durably, unless it exists or another process creates it meanwhile."""
    with open(path, "ab") as file:
        os.fsync(file.fileno())
    sync_folder(path.parent)


def _write(file: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(file, piece) :]


def _reserve(file: int, size: int) -> None:
    if size == 0 or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno not in _NO_RESERVING:
            raise


def make_folder(folder: Path) -> None:
    """Create a folder and its parents so that each survives a power failure."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
