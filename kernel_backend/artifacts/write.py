"""Write an artifact atomically; a folder becomes a zip whose bytes depend only on the folder's files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import xxhash

from kernel_backend.durable import TEMPORARY, replacing
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.artifacts import check_name, file_of, media_of
from kernel_backend.model.reports import ArtifactSaved

ZIP = ".zip"
_BEGAN = (1980, 1, 1, 0, 0, 0)  # date of all members of a zip, the earliest possible
_PIECE = 2**20


class ArtifactSource(NamedTuple):
    """File or folder to be saved as an artifact, with the artifact's name.

    For a folder, `files` maps names in the zip to paths.
    """

    path: Path
    name: str
    files: dict[str, Path] | None

    @property
    def size(self) -> int:
        """Return the total size of the source files in bytes, before compression."""
        return sum(path.stat().st_size for path in (self.files or {"": self.path}).values())

    @property
    def file(self) -> str:
        """Return the artifact's file name for downloads."""
        return self.name if self.files is not None else file_of(self.name, self.path)

    @property
    def media(self) -> str:
        """Return the artifact's media type for downloads, such as `image/png`."""
        return media_of(self.file)


class WrittenArtifact(NamedTuple):
    """Size in bytes and digest (xxh3-128, in hex) of an artifact's file that was written."""

    size: int
    digest: str

    def record(self, source: ArtifactSource, step: int, at: float = 0.0) -> ArtifactSaved:
        """Return the record by which the service lists the artifact.

        `step` is the training step at which it was saved, and `at` the time (Unix seconds); for 0, the time is set
        when the record is written for the service.
        """
        fields = {"name": source.name, "media": source.media, "file": source.file}
        return ArtifactSaved(size=self.size, digest=self.digest, step=step, at=at, **fields)


def look(name: str, path: str | os.PathLike[str]) -> ArtifactSource:
    """Return the files to save as an artifact; raise InvalidRequest for an invalid name or an unreadable path."""
    check_name(name)
    found = Path(path)
    try:
        kind = stat.S_IFMT(found.stat().st_mode)
    except (OSError, ValueError) as error:
        raise _refused(found, f"cannot be read ({_reason(error)}): write it first, in {Path.cwd()}") from None
    if kind == stat.S_IFREG:
        _check_readable(found)
        return ArtifactSource(found, name, None)
    if kind != stat.S_IFDIR:
        raise _refused(found, "is neither a file nor a folder")
    return ArtifactSource(found, check_name(name if name.endswith(ZIP) else name + ZIP), dict(_files(found)))


def keep(source: ArtifactSource, folder: Path) -> WrittenArtifact:
    """Copy or zip an artifact's source into `folder`, durably and atomically, replacing one of the same name.

    Raises OSError if the disk is full or the source has disappeared; the existing artifact is then untouched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / source.name) as file:
        target = _Digesting(file)
        if source.files is None:
            _copy(source.path, target)
        else:
            _pack(source.files, target)
    return target.written


def written(path: Path) -> WrittenArtifact:
    """Return size and digest of an artifact's file that is there already."""
    with path.open("rb") as file:
        return WrittenArtifact(path.stat().st_size, hashlib.file_digest(file, xxhash.xxh3_128).hexdigest())


def sweep(folder: Path) -> None:
    """Delete temporary files that a killed attempt left in the artifact folder."""
    for each in folder.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            each.unlink()


class _Digesting:
    """Output file that counts and digests the bytes written to it.

    It has no `seek`, so that zipfile writes each byte once, in order.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest, self._size = file, xxhash.xxh3_128(), 0

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self._digest.update(data)
        self._size += len(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()

    @property
    def written(self) -> WrittenArtifact:
        return WrittenArtifact(self._size, self._digest.hexdigest())


def _copy(path: Path, target: _Digesting | IO[bytes]) -> None:
    with open(path, "rb") as file:
        shutil.copyfileobj(file, target, _PIECE)


def _pack(files: dict[str, Path], target: _Digesting) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[call-overload]
        for name, path in files.items():
            about = zipfile.ZipInfo(name, _BEGAN)
            about.external_attr = (stat.S_IFREG | 0o644) << 16
            about.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(about, "w", force_zip64=True) as member:
                _copy(path, member)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (relative path, path) of each file below a folder, sorted.

    Raises InvalidRequest for symbolic links that lead out of the folder.
    """
    root = folder.resolve()
    for path in sorted(_below(folder)):
        real = path.resolve()
        if not real.is_relative_to(root):
            raise _refused(path, f"is a link that leads out of {folder}, to {real}: copy what it leads to")
        if not real.is_file():
            raise _refused(path, "is neither a file nor a folder")
        _check_readable(path)
        yield path.relative_to(folder).as_posix(), path


def _below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise _refused(Path(error.filename or folder), f"cannot be read ({_reason(error)})")

    for where, folders, names in os.walk(folder, onerror=refuse):
        linked = [name for name in folders if os.path.islink(os.path.join(where, name))]
        yield from (Path(where, name) for name in [*names, *linked])


def _check_readable(path: Path) -> None:
    if not os.access(path, os.R_OK):
        raise _refused(path, "must not be read")


def _refused(path: Path, why: str) -> InvalidRequest:
    return InvalidRequest(f"{str(path)!r} {why}; run.artifact(name, path) keeps a file, or a folder as a zip")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
