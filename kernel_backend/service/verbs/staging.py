"""Pass files of attempts between the service and nodes that do not see its home."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from weakref import WeakValueDictionary

from kernel_backend.errors import Fenced, InvalidRequest, NotFound, PlaceUnavailable, TooLarge
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.staging import LOG_LIMIT, StagedFile, is_log, is_staged, news
from kernel_backend.model.states import AttemptState
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store.base import Store


class Staging:
    """Files of attempts whose nodes do not see this home: the launchers fetch some, and send others.

    What they send is in the attempt's folder as if they had written it there, so that engines and views read it.
    """

    def __init__(self, store: Store, archive: Archive, home: Path) -> None:
        self._store, self._archive, self._home = store, archive, home
        self._locks: WeakValueDictionary[AttemptId, asyncio.Lock] = WeakValueDictionary()

    async def job(self, key: AttemptId) -> bytes:
        """Return the launch spec of an attempt as JSON; raises NotFound, and Fenced if the attempt is over."""
        folder = await self._open(key)
        return await asyncio.to_thread((folder.path / "job.json").read_bytes)

    async def snapshot(self, key: AttemptId) -> bytes:
        """Return the archive of an attempt's code; raises NotFound, and Fenced if the attempt is over."""
        await self._open(key)
        experiment = await asyncio.to_thread(self._store.experiment, key.experiment)
        return await asyncio.to_thread(self._archive.get, experiment.snapshot)

    async def write(self, key: AttemptId, name: str, offset: int, data: bytes) -> StagedFile:
        """Append to a log what is new in a piece at an offset, or replace a record; return the file's size.

        The same piece may come again. Raises InvalidRequest for other names, TooLarge for a log beyond its limit,
        NotFound, and Fenced if the attempt is over.
        """
        if not is_staged(name):
            raise InvalidRequest(f"{name[:100]!r} is no file that launchers send")
        folder = await self._open(key)
        lock = self._locks.setdefault(key, asyncio.Lock())  # a repeated piece may overtake the first one
        try:
            async with lock:
                return StagedFile(size=await asyncio.to_thread(_write, folder, name, offset, data))
        except OSError as error:
            raise PlaceUnavailable(f"{folder.path / name} cannot be written: {error.strerror or error}") from None

    async def _open(self, key: AttemptId) -> AttemptFolder:
        """Return the folder of an attempt that has not ended, and whose files are staged."""
        attempt = await asyncio.to_thread(self._store.attempt, key)
        trial = await asyncio.to_thread(self._store.trial, key.experiment, key.trial)
        if attempt.state is AttemptState.ENDED or trial.attempt != key.number:
            raise Fenced(f"attempt {key} is over: exit")
        folder = AttemptFolder(attempt_folder(self._home, key))
        if not await asyncio.to_thread(_is_staged_attempt, folder):
            raise NotFound(f"attempt {key} has its files in a folder that its nodes see")
        return folder


def _is_staged_attempt(folder: AttemptFolder) -> bool:
    try:
        return folder.job().staged
    except OSError:
        return False


def _write(folder: AttemptFolder, name: str, offset: int, data: bytes) -> int:
    """Write a piece of a log, or a whole record; return the file's size."""
    if is_log(name):
        return _append(folder.path / name, offset, data)
    folder.write(name, data)
    return len(data)


def _append(path: Path, offset: int, data: bytes) -> int:
    """Write what of a piece is new to the end of a log; return its size. The ranks' own user may have put a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no file")
        if new := news(status.st_size, offset, data):
            if status.st_size + len(new) > LOG_LIMIT:
                raise TooLarge(f"{path.name} is larger than {LOG_LIMIT // 2**30} GiB", limit=LOG_LIMIT)
            file.write(new)
        return os.fstat(file.fileno()).st_size
