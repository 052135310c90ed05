"""Checkpoints in a folder of a file system: every step survives a kill, a power cut and a full disk.

    <root>/<step>-<attempt>/<part>.safetensors ... manifest.json

A file is written under a temporary name, made durable (fsync), renamed, and its folder made durable: under its own
name there is only ever a whole one. A damaged checkpoint becomes `<step>-<attempt>.bad`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from kernel_backend.checkpoints.base import Manifest, Part, digest, dump, parse
from kernel_backend.errors import CheckpointDamaged

MANIFEST = "manifest.json"
_NAME = re.compile(r"(\d+)-(\d+)")
_TEMPORARY = ".writing"
# What file systems answer that cannot reserve space; writing tells soon enough there.
_NO_RESERVING = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}


class Directory:
    """The checkpoints of one trial under `root`, a folder that appears with the first of them."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, checkpoint: str, name: str, data: bytes | memoryview) -> Part:
        """Store one part durably; raises OSError (a full disk: before the first byte), leaving nothing of it."""
        folder = self._root / checkpoint
        self._make(folder)
        _replace(folder / f"{name}.safetensors", data)
        return Part(name=name, size=memoryview(data).nbytes, digest=digest(data))

    def commit(self, manifest: Manifest) -> None:
        """Write the manifest, the last file: its rename is the moment at which the checkpoint exists."""
        self._make(self._root / manifest.id)
        _replace(self._root / manifest.id / MANIFEST, dump(manifest))

    def committed(self) -> list[Manifest]:
        """Every checkpoint, oldest first by (step, attempt); reads manifests alone. Unreadable ones are set aside."""
        found: list[Manifest] = []
        for folder in self._folders():
            try:
                found.append(parse((folder / MANIFEST).read_bytes(), str(folder)))
            except FileNotFoundError:
                continue  # still being written, or left by a rank that died over it
            except CheckpointDamaged:
                self.set_aside(folder.name)
        return sorted(found, key=lambda manifest: manifest.order)

    def newest(self, fence: int | None = None) -> Manifest | None:
        """The newest by (step, attempt); with `fence`, of attempts below that number only."""
        candidates = [each for each in self.committed() if fence is None or each.attempt < fence]
        return candidates[-1] if candidates else None

    def newest_verified(
        self, fence: int | None = None, upto: tuple[int, int] | None = None
    ) -> tuple[Manifest | None, list[str]]:
        """The newest whose every byte agrees, and what was wrong with those after it, newest first.

        Damaged ones are set aside. `upto` leaves out what is newer than that (step, attempt).
        """
        problems: list[str] = []
        for manifest in reversed(self.committed()):
            newer_than_asked = upto is not None and manifest.order > upto
            if newer_than_asked or (fence is not None and manifest.attempt >= fence):
                continue
            try:
                self.verify(manifest)
                return manifest, problems
            except CheckpointDamaged as damage:
                self.set_aside(manifest.id)
                problems.append(damage.message)
        return None, problems

    def verify(self, manifest: Manifest) -> None:
        """Read every part; raises CheckpointDamaged that names the first one which does not agree."""
        for part in manifest.parts:
            self.read(manifest, part.name)

    def read(self, manifest: Manifest, name: str) -> bytes:
        """The verified bytes of a part; raises CheckpointDamaged where they do not agree with the manifest."""
        return read_part(manifest, name, self._root / manifest.id)

    def set_aside(self, checkpoint: str) -> None:
        """Rename it to `<name>.bad`, which nothing lists; an older `.bad` of that name is replaced."""
        bad = self._root / f"{checkpoint}.bad"
        shutil.rmtree(bad, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            (self._root / checkpoint).rename(bad)

    def discard(self, checkpoint: str) -> None:
        """Delete it, committed or not. The manifest goes first: a half deleted checkpoint is none."""
        with contextlib.suppress(FileNotFoundError):
            (self._root / checkpoint / MANIFEST).unlink()
        shutil.rmtree(self._root / checkpoint, ignore_errors=True)

    def sweep(self, attempt: int) -> None:
        """Delete what attempts before `attempt` began and never committed: they are dead and will not go on."""
        for folder in self._folders():
            if _attempt_of(folder.name) < attempt and not (folder / MANIFEST).exists():
                shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> Iterator[Path]:
        with contextlib.suppress(FileNotFoundError):
            yield from (each for each in self._root.iterdir() if _NAME.fullmatch(each.name))

    def _make(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            _sync_folder(self._root)


def read_part(manifest: Manifest, name: str, folder: Path) -> bytes:
    """The bytes of a part that lies in `folder`; raises CheckpointDamaged where size or digest do not agree."""
    part = manifest.part(name)
    where = f"checkpoint {manifest.id} in {folder.parent}"
    if part is None:
        raise CheckpointDamaged(f"{where} has no part {name}")
    try:
        data = (folder / f"{name}.safetensors").read_bytes()
    except OSError as error:
        raise CheckpointDamaged(f"{where}: part {name} cannot be read: {error.strerror}") from None
    if len(data) != part.size:
        raise CheckpointDamaged(f"{where}: part {name} has {len(data)} bytes, and {part.size} were written")
    if digest(data) != part.digest:
        raise CheckpointDamaged(f"{where}: part {name} has changed since it was written")
    return data


def _attempt_of(name: str) -> int:
    return int(name.split("-")[1])


def _replace(path: Path, data: bytes | memoryview) -> None:
    """Put `data` at `path` durably and at once; raises OSError, leaving what was there before."""
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        with open(temporary, "wb") as file:
            _reserve(file.fileno(), memoryview(data).nbytes)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _reserve(file: int, size: int) -> None:
    if size == 0 or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno not in _NO_RESERVING:
            raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
