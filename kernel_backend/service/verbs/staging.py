"""Transfer files of attempts between the service and nodes that cannot read its home directory."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar
from weakref import WeakValueDictionary

from kernel_backend.errors import Fenced, InvalidRequest, NotFound, PlaceUnavailable, TooLarge
from kernel_backend.home import artifact_folder, attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.staging import (
    ARTIFACTS_LIMIT,
    DIGEST,
    LIMIT,
    MOST_ARTIFACTS,
    StagedArtifact,
    StagedFile,
    is_log,
    is_of_gang,
    is_staged,
)
from kernel_backend.model.reports import ArtifactSaved
from kernel_backend.model.states import AttemptState
from kernel_backend.service.notifier import Notifier
from kernel_backend.service.verbs.staged_files import append, content_file, keep_content, sizes, sweep_contents
from kernel_backend.snapshots.archive import Archive
from kernel_backend.store.base import Store

_T = TypeVar("_T")


class Staging:
    """Operations for launchers on nodes that cannot read the service's home directory: they fetch and send files.

    Files that they send are written into the attempt's folder, where engines and views read them.
    """

    def __init__(self, store: Store, archive: Archive, home: Path, bus: Notifier) -> None:
        self._store, self._archive, self._home, self._bus = store, archive, home, bus
        self._locks: WeakValueDictionary[AttemptId, asyncio.Lock] = WeakValueDictionary()

    async def job(self, key: AttemptId) -> bytes:
        """Return the launch spec of an attempt as JSON; raises NotFound, and Fenced if the attempt is over."""
        folder = await self.open(key)
        return await asyncio.to_thread((folder.path / "job.json").read_bytes)

    async def snapshot(self, key: AttemptId) -> BinaryIO:
        """Return the open archive of an attempt's code; raises NotFound, and Fenced if the attempt is over."""
        await self.open(key)
        experiment = await asyncio.to_thread(self._store.experiment, key.experiment)
        return await asyncio.to_thread(self._archive.opened, experiment.snapshot)

    async def write(self, key: AttemptId, name: str, offset: int, data: bytes) -> StagedFile:
        """Append `data` to the log `name` of an attempt, or replace the small JSON file `name` by it.

        Of data for a log, which begin at `offset`, bytes that the log has already are skipped, so that the call is
        idempotent. Returns the file's size. Raises InvalidRequest for any other name, also of a rank or node that the
        gang does not have, TooLarge for a log if all logs together exceed their limit, NotFound, and Fenced if the
        attempt is over.
        """
        folder = await self.open(key)
        slots = await asyncio.to_thread(_slots, folder)
        if not (is_staged(name) and is_of_gang(name, slots)):
            raise InvalidRequest(f"{name[:100]!r} is no file that launchers of this gang send")
        return StagedFile(size=await self._alone(key, folder.path / name, partial(_write, folder, name, offset, data)))

    async def write_artifact(self, key: AttemptId, digest: str, offset: int, data: bytes) -> StagedFile:
        """Append `data`, which begins at `offset`, to the temporary file of an artifact with this digest.

        Returns the file's size. Raises the errors of `write`.
        """
        await self.open(key)
        content = content_file(artifact_folder(self._home, key.experiment, key.trial), key.number, digest)
        return StagedFile(size=await self._alone(key, content.parent, partial(_write_content, content, offset, data)))

    async def keep_artifact(self, key: AttemptId, saved: ArtifactSaved) -> StagedArtifact:
        """Store an artifact if all of its bytes have arrived; otherwise return how many have arrived.

        Bytes with another digest than the artifact's are deleted. Raises InvalidRequest for an invalid digest,
        TooLarge, NotFound, and Fenced if the attempt is over.
        """
        if re.fullmatch(DIGEST, saved.digest) is None:
            raise InvalidRequest(f"{saved.digest[:100]!r} is no digest of an artifact")
        if saved.size > LIMIT:
            raise TooLarge(f"it has more than {LIMIT // 2**30} GiB: write it to a store", limit=LIMIT)
        await self.open(key)
        content = content_file(artifact_folder(self._home, key.experiment, key.trial), key.number, saved.digest)
        size = await self._alone(key, content.parent, partial(_keep, content, key.number, saved))
        if size is not None:
            return StagedArtifact(size=size)
        await asyncio.to_thread(self._store.keep_artifact, key, saved)
        self._bus.notify()
        return StagedArtifact(size=saved.size, stored=True)

    async def _alone(self, key: AttemptId, path: Path, write: Callable[[], _T]) -> _T:
        """Run `write`, which writes to `path`, in a thread; at most one call per attempt runs at a time.

        Otherwise a repeated request could overtake the first. An OSError is raised as PlaceUnavailable.
        """
        try:
            async with self._locks.setdefault(key, asyncio.Lock()):
                return await asyncio.to_thread(write)
        except OSError as error:
            raise PlaceUnavailable(f"{path} cannot be written: {error.strerror or error}") from None

    async def open(self, key: AttemptId) -> AttemptFolder:
        """Return the folder of an attempt whose nodes send their files through the service.

        Raises NotFound, and Fenced if the attempt is over.
        """
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


def _slots(folder: AttemptFolder) -> int:
    job = folder.job()
    return max(job.config.slots, sum(len(share.slots) for share in job.placement))


def _write(folder: AttemptFolder, name: str, offset: int, data: bytes) -> int:
    """Append a piece to the log `name` in an attempt's folder, or replace the small file `name`; return the size."""
    if is_log(name):
        others = sum(sizes(folder.path, name, is_log))
        return append(folder.path / name, offset, data, LIMIT - others)
    folder.write(name, data)
    return len(data)


def _write_content(content: Path, offset: int, data: bytes) -> int:
    """Write a piece of an artifact to its temporary file; on an error remove the file, which frees its space."""
    content.parent.mkdir(parents=True, exist_ok=True)
    others = _others(content)
    try:
        return append(content, offset, data, min(LIMIT, ARTIFACTS_LIMIT - sum(others)))
    except (OSError, TooLarge):
        content.unlink(missing_ok=True)
        raise


def _others(content: Path) -> list[int]:
    """Return the sizes of a trial's other artifacts; raise TooLarge if it cannot have one more."""
    found = sizes(content.parent, content.name)
    if len(found) >= MOST_ARTIFACTS:
        raise TooLarge(f"this trial has {len(found):,} artifacts, and no more are taken", limit=MOST_ARTIFACTS)
    return found


def _keep(content: Path, attempt: int, saved: ArtifactSaved) -> int | None:
    content.parent.mkdir(parents=True, exist_ok=True)
    sweep_contents(content.parent, attempt)
    if not (content.parent / saved.name).exists():
        _others(content)
    return keep_content(content, saved)
