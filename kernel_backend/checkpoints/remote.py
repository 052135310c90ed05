"""Store checkpoints in an object store: any URL that fsspec can open, such as `s3://bucket/runs`.

    <url>/<step>-<attempt>/<part>.safetensors ... manifest.json [pinned] [judged-<evaluation>]

    <url>/claim-<attempt> [follow-<evaluation>]

An object exists completely or not at all, so uploading the manifest last commits the checkpoint. Object stores cannot
rename: a checkpoint is quarantined by copying its manifest to `manifest.json.bad` and deleting the original. If the
process is killed between the two steps, the next reader finds the damage again and repeats them.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from kernel_backend.checkpoints.base import Data, Manifest, Part, QuarantinedCheckpoint, dump
from kernel_backend.checkpoints.streams import Digesting, size_of, slices
from kernel_backend.checkpoints.verify import (
    ID,
    JUDGED,
    MANIFEST,
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
from kernel_backend.errors import DaylightError, InvalidRequest, NotFound
from kernel_backend.retry import RetryPolicy, exponential

BAD = f"{MANIFEST}.bad"
RETRY = RetryPolicy(exponential(0.5, 4.0), tries=5)
BLOCK = 8 * 2**20  # bytes; larger objects are uploaded in several blocks
BLOCKS = 9_000  # per object: S3 accepts up to 10,000
PIECE = 4 * 2**20  # bytes; fsspec copies each piece, which blocks other threads
RANGE = 32 * 2**20  # bytes requested at once when a download is only digested
# Errors for which a retry is useless.
_SETTLED = (FileNotFoundError, PermissionError, NotImplementedError)

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Remote(VerifyingCheckpoints):
    """Checkpoints of one trial under a URL; network errors are retried, then raised as OSError."""

    def __init__(self, where: str, uid: str | None = None, retry: RetryPolicy = RETRY) -> None:
        super().__init__(uid)
        self._where = where.rstrip("/")
        self._retry = retry
        self._fs, self._root = _open(self._where)

    @property
    def where(self) -> str:
        """Return the URL of the checkpoints."""
        return self._where

    def free(self) -> None:
        """Return None, as the free space of an object store is unknown."""

    def write(self, checkpoint: str, name: str, data: Data) -> Part:
        """Upload one part, a block at a time; on failure delete the object and raise OSError."""
        path = self._path(checkpoint, f"{name}{SUFFIX}")
        try:
            return self._tried(partial(self._upload, path, data)).part(name)
        except OSError:
            with contextlib.suppress(Exception):  # the first error is raised
                self._fs.rm_file(path)
            raise

    def reuse(self, checkpoint: str, part: Part) -> bool:
        """Store a part as a copy that the object store makes from another checkpoint of this trial, without an upload.

        Returns False if no such part is found.
        """
        target = self._path(checkpoint, f"{part.name}{SUFFIX}")
        for manifest in reversed(self.committed()):
            found = next((each for each in manifest.parts if _same(each, part)), None)
            if found is not None:
                source = self._path(manifest.id, f"{found.name}{SUFFIX}")
                try:
                    self._tried(partial(self._fs.cp_file, source, target))
                except (OSError, NotImplementedError) as error:  # the source is deleted, or the store cannot copy
                    _log.info("%s is uploaded, since the store did not copy it: %r", target, error)
                else:
                    return True
        return False

    def commit(self, manifest: Manifest) -> None:
        """Upload the manifest last, which commits the checkpoint."""
        self._put(manifest.id, MANIFEST, dump(manifest))

    def set_aside(self, checkpoint: str) -> None:
        """Replace a checkpoint's manifest by `manifest.json.bad`, so that the checkpoint is not listed."""
        with contextlib.suppress(FileNotFoundError):
            manifest = self._path(checkpoint, MANIFEST)
            self._put(checkpoint, BAD, self._tried(partial(self._fs.cat_file, manifest)))
            self._tried(partial(self._fs.rm_file, manifest))

    def aside(self) -> list[QuarantinedCheckpoint]:
        """Return the quarantined checkpoints: those with a `manifest.json.bad` and no manifest.

        If the object store keeps no modification times, the present time is given for them.
        """
        found = sorted(self._objects().items())
        return [self._aside(checkpoint, names) for checkpoint, names in found if BAD in names and MANIFEST not in names]

    def discard(self, checkpoint: str) -> None:
        """Delete a checkpoint, committed or not, unless it is pinned or awaits an evaluation.

        The manifest is deleted first, so that a half-deleted checkpoint is not a committed one.
        """
        names = self._objects(checkpoint).get(checkpoint, set())
        awaited = {judged_name(by) for by in followers_among(self.names())} - names
        if MANIFEST not in names or not (PINNED in names or awaited):
            self._delete(checkpoint, names)

    def sweep(self, attempt: int) -> None:
        """Delete uncommitted checkpoints of attempts before number `attempt`, which have ended."""
        for checkpoint, names in self._objects().items():
            if attempt_of(checkpoint) < attempt and not names & {MANIFEST, BAD}:
                self._delete(checkpoint, names)

    def clear(self) -> None:
        """Delete the fences (objects `claim-<attempt>`, see `fence`) if no other object of the trial is left.

        An object store has no folders to delete.
        """
        names = self.names()
        marks = marks_among(names)
        if len(marks) == len(names):
            for name in marks:
                with contextlib.suppress(FileNotFoundError):
                    self._tried(partial(self._fs.rm_file, f"{self._root}/{name}"))

    def pin(self, checkpoint: str, pinned: bool) -> None:
        """Pin or unpin a checkpoint: create or remove the object `pinned` next to its manifest; raise NotFound."""
        if not self._has_manifest(checkpoint):
            raise NotFound(f"there is no checkpoint {checkpoint} in {self._where}")
        if pinned:
            self._put(checkpoint, PINNED, b"pinned\n")
        else:
            self._delete(checkpoint, {PINNED})

    def follow(self, by: int, follows: bool) -> None:
        """Mark the trial as followed by the evaluation `by` (an object), or remove the mark; raise OSError."""
        mark = f"{self._root}/{follower_name(by)}"
        if follows:
            self._tried(partial(self._fs.pipe_file, mark, b"follows\n"))
        else:
            with contextlib.suppress(FileNotFoundError):
                self._tried(partial(self._fs.rm_file, mark))

    def judge(self, checkpoint: str, by: int, metrics: Mapping[str, float]) -> None:
        """Store what the evaluation `by` has measured next to the checkpoint's manifest; raise NotFound."""
        if not self._has_manifest(checkpoint):
            raise NotFound(f"there is no checkpoint {checkpoint} in {self._where}")
        self._put(checkpoint, judged_name(by), dump_values(metrics))

    def names(self) -> list[str]:
        """Return the names of all entries below the trial's URL: checkpoints, fences and others; raise OSError."""
        return [path.rstrip("/").rpartition("/")[2] for path in self._tried(self._beside)]

    def fence(self, attempt: int) -> None:
        """Fence older attempts, whose new checkpoints are then ignored; raise OSError.

        Creates the object `claim-<attempt>` and removes the objects of older attempts.
        """
        self._tried(partial(self._fs.pipe_file, f"{self._root}/{fence_name(attempt)}", b"claimed\n"))
        with contextlib.suppress(OSError):  # obsolete
            for older in fences_among(self.names()):
                if older < attempt:
                    self._tried(partial(self._fs.rm_file, f"{self._root}/{fence_name(older)}"))

    def _manifests(self) -> Iterator[StoredManifest]:
        found = {name: names for name, names in self._objects().items() if MANIFEST in names}
        judged = {
            self._path(checkpoint, name): (checkpoint, int(by[1]))
            for checkpoint, names in found.items()
            for name in names
            if (by := JUDGED.fullmatch(name))
        }
        read = self._read_all([*(self._path(checkpoint, MANIFEST) for checkpoint in found), *judged])
        for checkpoint, names in found.items():
            if (data := read.get(self._path(checkpoint, MANIFEST))) is not None:  # else it was deleted meanwhile
                values = {by: read.get(path, b"") for path, (own, by) in judged.items() if own == checkpoint}
                yield StoredManifest(checkpoint, data, PINNED in names, values)

    def _aside(self, checkpoint: str, names: set[str]) -> QuarantinedCheckpoint:
        sizes = self._tried(partial(self._fs.sizes, [self._path(checkpoint, name) for name in names]))
        try:
            since = self._tried(partial(self._fs.modified, self._path(checkpoint, BAD))).timestamp()
        except NotImplementedError:
            since = time.time()
        return QuarantinedCheckpoint(checkpoint, sum(sizes), since)

    def _stream(self, checkpoint: str, name: str, offset: int = 0) -> Iterator[bytes]:
        path = self._path(checkpoint, f"{name}{SUFFIX}")
        self._fs.invalidate_cache()
        size = int(self._tried(partial(self._fs.info, path))["size"])
        for begin in range(offset, size, RANGE):
            yield self._tried(partial(self._fs.cat_file, path, start=begin, end=min(begin + RANGE, size)))

    def _whole(self, checkpoint: str, name: str) -> bytes:
        return bytes(self._tried(partial(self._fs.cat_file, self._path(checkpoint, f"{name}{SUFFIX}"))))

    def _has_manifest(self, checkpoint: str) -> bool:
        return MANIFEST in self._objects(checkpoint).get(checkpoint, set())

    def _path(self, checkpoint: str, name: str) -> str:
        return f"{self._root}/{checkpoint}/{name}"

    def _put(self, checkpoint: str, name: str, data: bytes) -> None:
        self._tried(partial(self._fs.pipe_file, self._path(checkpoint, name), data))

    def _upload(self, path: str, data: Data) -> Digesting:
        written = Digesting()
        blocks = -(-size_of(data) // (BLOCK * BLOCKS))
        with self._fs.open(path, "wb", block_size=max(1, blocks) * BLOCK) as file:
            for piece in slices(data, PIECE):
                file.write(piece)
                written.take(piece)
        return written

    def _delete(self, checkpoint: str, names: set[str]) -> None:
        for name in sorted(names, key=lambda name: name != MANIFEST):
            with contextlib.suppress(FileNotFoundError):
                self._tried(partial(self._fs.rm_file, self._path(checkpoint, name)))

    def _objects(self, under: str = "") -> Mapping[str, set[str]]:
        """Return the names of each checkpoint's objects, by checkpoint, from a new listing instead of fsspec's cache.

        If `under` is the name of a checkpoint, only this one is listed.
        """
        found: dict[str, set[str]] = {}
        for path in self._tried(partial(self._listed_paths, f"{self._root}/{under}".rstrip("/"))):
            checkpoint, _, name = path.removeprefix(f"{self._root}/").partition("/")
            if name and ID.fullmatch(checkpoint):
                found.setdefault(checkpoint, set()).add(name)
        return found

    def _listed_paths(self, path: str) -> list[str]:
        self._fs.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            # Some file systems' `find` returns nothing after an error; `ls` raises it.
            return list(self._fs.find(path) or self._fs.ls(path, detail=False))
        return []

    def _beside(self) -> list[str]:
        """Return the paths of the entries directly below the trial's URL (checkpoints and fences), by one request."""
        self._fs.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            return list(self._fs.ls(self._root, detail=False))
        return []

    def _read_all(self, paths: list[str]) -> Mapping[str, bytes]:
        """Return the content of many small objects by path, read in one batch; those deleted meanwhile are left out."""

        def read() -> Mapping[str, bytes]:
            found = self._fs.cat(paths, on_error="return") if paths else {}
            for error in found.values():
                if isinstance(error, Exception) and not isinstance(error, FileNotFoundError):
                    raise error
            return {path: data for path, data in found.items() if not isinstance(data, Exception)}

        return self._tried(read)

    def _tried(self, act: Callable[[], _T]) -> _T:
        try:
            return self._retry.call(act, unless=_SETTLED)
        except _SETTLED:
            raise
        except Exception as error:  # file systems raise errors of their own
            raise OSError(f"{self._where}: {error or type(error).__name__}") from error


def _same(one: Part, other: Part) -> bool:
    return (one.size, one.digest) == (other.size, other.digest)


def _open(where: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it.

    Raise DaylightError, which names a package that is missing.
    """
    if any(sign in where for sign in "*?["):
        raise InvalidRequest(f"{where}: a place of checkpoints has none of * ? [ in its name")
    try:
        import fsspec

        fs, root = fsspec.url_to_fs(where)
    except ImportError as error:
        scheme = where.partition("://")[0]
        raise DaylightError(
            f"{scheme}:// cannot be used here: {error}: pip install 'daylight[remote]', and what fsspec needs for "
            "the store: s3fs (s3://), gcsfs (gs://), adlfs (abfs://)"
        ) from None
    except ValueError as error:
        raise InvalidRequest(f"{where} is no place for checkpoints: {error}") from None
    return fs, root.rstrip("/")
