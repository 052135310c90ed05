"""Pack, check and store archives of snapshots: deterministic zip files, named by the sha256 of their bytes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from kernel_backend.durable import replacing
from kernel_backend.errors import DaylightError, InvalidDefinition, InvalidRequest, NotFound, TooLarge
from kernel_backend.model import versions
from kernel_backend.model.snapshot import DEFINITION, DESCRIPTION, Snapshot

MAX_BYTES = 512 * 2**20  # of all members, unpacked
MAX_MEMBERS = 20_000
MAX_DIRECTORY = 16 * 2**20  # bytes of the zip's directory
# Limits for members that the service reads: ordinary notebooks have about a thousandth of it.
LARGEST = {DEFINITION: 2**20, DESCRIPTION: 8 * 2**20}
PIECE = 2**20  # bytes unpacked at once
# Errors from reading an archive that was deleted or damaged.
UNREADABLE = (DaylightError, OSError, ValueError, zipfile.BadZipFile)
_END = struct.Struct("<4s4H2LH")  # end record of a zip: signature, disks, members, size and position of the directory
_UPLOAD = ".upload"  # ending of the file that names who has sent an archive
_ID = re.compile(r"[0-9a-f]{64}")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest date that a zip can hold


def pack(files: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Return the id and the bytes of an archive; the same files give the same id, at any time and on any machine.

    Nothing is compressed, as versions of zlib compress differently. Raises InvalidRequest for a name that would be
    unpacked outside of the target folder.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            member = zipfile.ZipInfo(_checked_name(name), _LONG_AGO)
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            member.create_system = 3  # Unix, on any system
            archive.writestr(member, files[name])
    data = buffer.getvalue()
    return digest(data), data


def pack_snapshot(source: str, snapshot: Snapshot, files: Mapping[str, bytes] | None = None) -> tuple[str, bytes]:
    """Return the id and the bytes of a snapshot's archive.

    It contains the training definition `source`, the description `snapshot`, and additional `files` by name.
    """
    own = {DEFINITION: source.encode(), DESCRIPTION: snapshot.model_dump_json(indent=1).encode()}
    return pack({**(files or {}), **own})


def digest(data: bytes) -> str:
    """Return the sha256 of these bytes in hex, which is a snapshot's id."""
    return hashlib.sha256(data).hexdigest()


class Upload(NamedTuple):
    """Archive that no experiment uses yet: its id, the user who has sent it, and its size in bytes."""

    id: str
    owner: str
    bytes: int


class Archive:
    """Folder of archives, one file each, named by their ids.

    A file beside an archive names the user who has sent it, until an experiment uses it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def has(self, id: str) -> bool:
        """Return True if the archive with this id is stored."""
        return _ID.fullmatch(id) is not None and self._path(id).is_file()

    def spare(self, id: str) -> bool:
        """Return whether an archive is stored; its time is updated, so that a concurrent `remove` spares it."""
        with contextlib.suppress(OSError):
            if self.has(id):
                os.utime(self._path(id))
        return self.has(id)

    def put(self, id: str, data: bytes, owner: str | None = None) -> None:
        """Store an archive, as an upload of the user `owner`; do nothing if it is stored already.

        Raises InvalidRequest if the bytes do not match `id`, are no zip, or contain a member that must not be
        unpacked (an absolute path, a path outside of the folder, a link), and TooLarge if it would unpack to too many
        bytes.
        """
        if digest(data) != id:
            raise InvalidRequest(f"these bytes have the sha256 {digest(data)}, not {id!r}: send the archive again")
        if self.has(id):
            return
        check(data)
        self.root.mkdir(parents=True, exist_ok=True)
        if owner is not None:
            with replacing(self._mark(id), mode=0o600) as file:
                file.write(owner.encode())
        with replacing(self._path(id), mode=0o600) as file:
            file.write(data)

    def uploads(self) -> list[Upload]:
        """Return the archives that no experiment uses yet."""
        found = []
        for mark in self.root.glob(f"*{_UPLOAD}"):
            with contextlib.suppress(FileNotFoundError):
                found.append(Upload(mark.stem, mark.read_text(), self.bytes(mark.stem)))
        return found

    def used(self, id: str) -> None:
        """Note that an experiment uses an archive, which is no upload any more."""
        self._mark(id).unlink(missing_ok=True)

    def get(self, id: str) -> bytes:
        """Return the bytes of the archive with this id; raise NotFound."""
        with self.opened(id) as file:
            return file.read()

    def opened(self, id: str) -> BinaryIO:
        """Open the archive with this id for reading; raise NotFound."""
        if not self.has(id):
            raise _missing(id)
        return self._path(id).open("rb")

    def read(self, id: str, name: str) -> bytes:
        """Return the bytes of one file of an archive.

        Raises NotFound, and TooLarge for a large file in an archive that was stored before archives had limits.
        """
        with self._opened(id) as archive:
            try:
                _check_largest(archive.getinfo(name))
                return archive.read(name)
            except KeyError:
                raise NotFound(f"snapshot {id[:12]} has no file {name!r}") from None

    def definition(self, id: str) -> str:
        """Return the definition's text; raise NotFound, TooLarge, and InvalidDefinition if it is not UTF-8."""
        return _text(self.read(id, DEFINITION))

    def files(self, id: str, wanted: Callable[[str], bool]) -> Files:
        """Return the files of an archive whose names `wanted` accepts, by name; each is read when accessed.

        Raises NotFound.
        """
        with self._opened(id) as archive:
            return Files(self._path(id), frozenset(filter(wanted, archive.namelist())))

    def size(self, id: str, wanted: Callable[[str], bool]) -> int:
        """Return the total unpacked size in bytes of the files of an archive whose names `wanted` accepts.

        The sizes recorded in the archive are used, which were checked when it was stored. Raises NotFound.
        """
        with self._opened(id) as archive:
            return sum(member.file_size for member in archive.infolist() if wanted(member.filename))

    def snapshot(self, id: str) -> Snapshot:
        """Return a snapshot's description; raise NotFound, or InvalidRequest if it is invalid."""
        try:
            return versions.read(Snapshot, self.read(id, DESCRIPTION))
        except ValueError as error:
            raise InvalidRequest(f"{DESCRIPTION} of snapshot {id[:12]} cannot be read: {error}") from None

    def bytes(self, id: str) -> int:
        """Return the size of an archive in bytes; 0 if it is not stored."""
        try:
            return self._path(id).stat().st_size
        except FileNotFoundError:
            return 0

    def remove(self, id: str, before: float) -> None:
        """Delete an archive unless it was stored or touched (by `spare`) after the time `before`.

        The time is in seconds since the epoch.
        """
        with contextlib.suppress(FileNotFoundError):
            if self._path(id).stat().st_mtime < before:
                self._path(id).unlink()
                self.used(id)

    def _opened(self, id: str) -> zipfile.ZipFile:
        if not self.has(id):
            raise _missing(id)
        return zipfile.ZipFile(self._path(id))

    def _path(self, id: str) -> Path:
        return self.root / f"{id}.zip"

    def _mark(self, id: str) -> Path:
        return self.root / f"{id}{_UPLOAD}"


class Files(Mapping[str, bytes]):
    """Files of an archive by name. Each is read only when accessed, since all together may be large."""

    def __init__(self, path: Path, names: frozenset[str], more: Mapping[str, bytes] | None = None) -> None:
        self._path, self._names, self._more = path, names, dict(more or {})
        self._open: zipfile.ZipFile | None = None

    def __getitem__(self, name: str) -> bytes:
        if name in self._more:
            return self._more[name]
        if name not in self._names:
            raise KeyError(name)
        if self._open is None:
            self._open = zipfile.ZipFile(self._path)
        return self._open.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names | self._more.keys())

    def __len__(self) -> int:
        return len(self._names | self._more.keys())

    def __reduce__(self) -> tuple[type[Files], tuple[object, ...]]:
        """Pickle the mapping by path and names, without the open archive."""
        return Files, (self._path, self._names, self._more)

    def beside(self, more: Mapping[str, bytes]) -> Files:
        """Return a mapping with the files of the archive and those in `more`, which take precedence."""
        return Files(self._path, self._names, {**self._more, **more})


def _missing(id: str) -> NotFound:
    return NotFound(f"there is no snapshot {id!r}: upload it with PUT /api/snapshots/<sha256> first")


def unpack(data: bytes, folder: Path) -> None:
    """Unpack an archive into `folder`, creating it if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            target = folder / _checked_name(member.filename)
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy, PIECE)


def contents(data: bytes) -> dict[str, bytes]:
    """Return all files of an archive by their names."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check(data: bytes) -> None:
    """Check that an archive may be unpacked; raise InvalidRequest or TooLarge (see `Archive.put`).

    The sizes recorded in the archive are not trusted: members are read in pieces, and their bytes counted.
    """
    _check_directory(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            _check_size(members)
            for member in members:
                _check_member(member)
            for member in members:
                _read_through(archive, member)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, zlib.error) as error:
        raise InvalidRequest(f"this is no archive of a snapshot, or a damaged one: {error}: send it again") from None


def _check_directory(data: bytes) -> None:
    """Raise TooLarge if the zip's list of files is too large, and InvalidRequest if it is not where a plain zip has it.

    The module zipfile would read the whole list at once.
    """
    signature, _, _, _, entries, size, _, comment = _END.unpack(data[-_END.size :].rjust(_END.size))
    if signature != b"PK\5\6" or comment or data[-_END.size - 20 : -_END.size].startswith(b"PK\6\7"):
        raise InvalidRequest("this is no archive of a snapshot: it does not end as a plain zip does")
    start = len(data) - _END.size - size
    counted = data.count(b"PK\1\2", max(start, 0))
    if start < 0 or size > MAX_DIRECTORY or max(entries, counted) > MAX_MEMBERS:
        raise TooLarge(
            f"this snapshot has {max(entries, counted):,} files, and a table of {size / 2**20:.0f} MiB of them; "
            f"the limits are {MAX_MEMBERS:,} files and {MAX_DIRECTORY // 2**20} MiB: leave some files out"
        )


def _read_through(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Read a member up to its recorded size; raise BadZipFile if its content does not match."""
    keep = member.filename == DEFINITION
    kept, read = bytearray(), 0
    with archive.open(member) as file:
        while piece := file.read(PIECE):
            read += len(piece)
            kept += piece if keep else b""
    if read != member.file_size:
        raise zipfile.BadZipFile(f"{member.filename!r} has {read} bytes, not {member.file_size}")
    if keep:
        _text(bytes(kept))


def _text(source: bytes) -> str:
    try:
        return source.decode()
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise InvalidDefinition(
            f"{DEFINITION} is not UTF-8: byte {source[error.start]:#04x} on line {line}: save it as UTF-8",
            line=line,
            text="",
        ) from None


def _check_size(members: list[zipfile.ZipInfo]) -> None:
    size = sum(member.file_size for member in members)
    if size > MAX_BYTES or len(members) > MAX_MEMBERS:
        raise TooLarge(
            f"this snapshot unpacks to {size / 2**20:.0f} MiB in {len(members)} files; the limits are "
            f"{MAX_BYTES // 2**20} MiB and {MAX_MEMBERS} files"
        )


def _check_member(member: zipfile.ZipInfo) -> None:
    _checked_name(member.filename)
    _check_largest(member)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others can unpack without a limit
        raise InvalidRequest(f"{member.filename!r} of this archive is packed in an unusual way: store or deflate it")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise InvalidRequest(f"{member.filename!r} of this archive is a link or a special file: only files are taken")


def _check_largest(member: zipfile.ZipInfo) -> None:
    limit = LARGEST.get(member.filename, MAX_BYTES)
    if member.file_size > limit:
        raise TooLarge(
            f"{member.filename} of this snapshot has {member.file_size / 2**20:.1f} MiB; "
            f"the limit is {limit // 2**20} MiB"
        )


def _checked_name(name: str) -> str:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or name.endswith("/"):
        raise InvalidRequest(f"{name!r} is no name of a file inside a snapshot: write a relative path without '..'")
    return name
