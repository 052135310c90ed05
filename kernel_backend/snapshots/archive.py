"""A snapshot's archive: a deterministic zip whose name is the sha256 of its bytes."""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from kernel_backend.errors import InvalidRequest, NotFound, TooLarge
from kernel_backend.model.snapshot import DEFINITION, DESCRIPTION, Snapshot

MAX_BYTES = 512 * 2**20  # of all members together, unpacked
MAX_MEMBERS = 20_000
_ID = re.compile(r"[0-9a-f]{64}")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest date that a zip can hold


def pack(files: Mapping[str, bytes]) -> tuple[str, bytes]:
    """The archive's id and bytes: the same files give the same id, on any day and machine.

    Nothing is compressed, since versions of zlib compress the same bytes differently.
    Raises InvalidRequest for a name that would leave the folder it is unpacked into.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            member = zipfile.ZipInfo(_checked_name(name), _LONG_AGO)
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            member.create_system = 3  # Unix, wherever we are
            archive.writestr(member, files[name])
    data = buffer.getvalue()
    return digest(data), data


def pack_snapshot(source: str, snapshot: Snapshot, files: Mapping[str, bytes] | None = None) -> tuple[str, bytes]:
    """The archive of a definition, its description, and the `files` that travel with it."""
    own = {DEFINITION: source.encode(), DESCRIPTION: snapshot.model_dump_json(indent=1).encode()}
    return pack({**(files or {}), **own})


def digest(data: bytes) -> str:
    """The sha256 of these bytes in hexadecimal: a snapshot's id."""
    return hashlib.sha256(data).hexdigest()


class Archive:
    """The archives in a folder, one file each, named by their ids."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def has(self, id: str) -> bool:
        """Whether this archive is stored."""
        return _ID.fullmatch(id) is not None and self._path(id).is_file()

    def put(self, id: str, data: bytes) -> None:
        """Store an archive; one that is there already is left alone.

        Raises InvalidRequest where the bytes are not those of `id`, are no archive, or hold a member that must
        not be unpacked (absolute, climbing out, a link), and TooLarge where they would unpack to too much.
        """
        if digest(data) != id:
            raise InvalidRequest(f"these bytes have the sha256 {digest(data)}, not {id!r}: send the archive again")
        if self.has(id):
            return
        check(data)
        self.root.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.root, prefix=".", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self._path(id))
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def get(self, id: str) -> bytes:
        """The archive's bytes; raises NotFound."""
        if not self.has(id):
            raise _missing(id)
        return self._path(id).read_bytes()

    def read(self, id: str, name: str) -> bytes:
        """One file of an archive; raises NotFound."""
        with self._opened(id) as archive:
            try:
                return archive.read(name)
            except KeyError:
                raise NotFound(f"snapshot {id[:12]} has no file {name!r}") from None

    def files(self, id: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
        """The files of an archive whose names are wanted; raises NotFound."""
        with self._opened(id) as archive:
            return {name: archive.read(name) for name in archive.namelist() if wanted(name)}

    def snapshot(self, id: str) -> Snapshot:
        """An archive's own description; raises NotFound, or InvalidRequest where it is none of ours."""
        try:
            return Snapshot.model_validate_json(self.read(id, DESCRIPTION))
        except ValueError as error:
            raise InvalidRequest(f"{DESCRIPTION} of snapshot {id[:12]} cannot be read: {error}") from None

    def _opened(self, id: str) -> zipfile.ZipFile:
        if not self.has(id):
            raise _missing(id)
        return zipfile.ZipFile(self._path(id))

    def _path(self, id: str) -> Path:
        return self.root / f"{id}.zip"


def _missing(id: str) -> NotFound:
    return NotFound(f"there is no snapshot {id!r}: upload it with PUT /api/snapshots/<sha256> first")


def unpack(data: bytes, folder: Path) -> None:
    """Write the files of an archive into `folder`, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            target = folder / _checked_name(member.filename)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(member))


def contents(data: bytes) -> dict[str, bytes]:
    """All files of an archive by name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check(data: bytes) -> None:
    """Pass for an archive that may be unpacked; raises InvalidRequest or TooLarge (see `Archive.put`)."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            _check_size(members)
            for member in members:
                _check_member(member)
            damaged = archive.testzip()
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise InvalidRequest(f"this is no archive of a snapshot: {error}") from None
    if damaged is not None:
        raise InvalidRequest(f"{damaged!r} of this archive is damaged: send it again")


def _check_size(members: list[zipfile.ZipInfo]) -> None:
    size = sum(member.file_size for member in members)
    if size > MAX_BYTES or len(members) > MAX_MEMBERS:
        raise TooLarge(
            f"this snapshot unpacks to {size / 2**20:.0f} MiB in {len(members)} files; the limits are "
            f"{MAX_BYTES // 2**20} MiB and {MAX_MEMBERS} files"
        )


def _check_member(member: zipfile.ZipInfo) -> None:
    _checked_name(member.filename)
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise InvalidRequest(f"{member.filename!r} of this archive is a link or a special file: only files are taken")


def _checked_name(name: str) -> str:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or name.endswith("/"):
        raise InvalidRequest(f"{name!r} is no name of a file inside a snapshot: write a relative path without '..'")
    return name
