"""Verify checkpoints in any storage: no byte is used before its digest has been checked."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_backend.checkpoints.base import Manifest, Part, parse
from kernel_backend.checkpoints.streams import Digesting
from kernel_backend.errors import CheckpointDamaged, NotFound
from kernel_backend.model.trial import checkpoint_order

MANIFEST, PINNED, SUFFIX = "manifest.json", "pinned", ".safetensors"
ID = re.compile(r"(\d+)-(\d+)")
_FENCE = re.compile(r"claim-([0-9]+)")  # names of fences, which are stored next to the checkpoints
_FOLLOWER = re.compile(r"follow-([0-9]{1,9})")  # names of marks of evaluations that follow the trial
JUDGED = re.compile(r"judged-([0-9]{1,9})")  # names of files with what an evaluation has measured, in a checkpoint
MOST_JUDGED = 2**20  # bytes of such a file

_log = logging.getLogger(__name__)


class StoredManifest(NamedTuple):
    """Manifest as it is stored, not parsed yet, and what evaluations have stored beside it, by their numbers."""

    checkpoint: str
    data: bytes
    pinned: bool
    judged: Mapping[int, bytes] = {}


class VerifyingCheckpoints(ABC):
    """Base class of checkpoint storage that lists, verifies and quarantines checkpoints.

    Only checkpoints with the trial's `uid` are listed; None lists all.
    """

    def __init__(self, uid: str | None = None) -> None:
        self._uid = uid

    @property
    @abstractmethod
    def where(self) -> str:
        """Return the folder or URL of the checkpoints, for display."""

    @abstractmethod
    def set_aside(self, checkpoint: str) -> None:
        """Quarantine a damaged checkpoint: it is not listed any more, but its files stay for inspection."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all entries in the trial's storage; raise OSError.

        They are checkpoints, fences (marks by which an attempt makes checkpoints of older ones unusable) and others.
        """

    @abstractmethod
    def _manifests(self) -> Iterator[StoredManifest]:
        """Yield all stored manifests, unparsed."""

    @abstractmethod
    def _stream(self, checkpoint: str, name: str, offset: int = 0) -> Iterator[bytes | memoryview]:
        """Yield the bytes of a part from an offset on, without verifying them.

        A piece is valid until the next one is requested. Raises FileNotFoundError, and CheckpointDamaged if the bytes
        cannot be read.
        """

    @abstractmethod
    def _whole(self, checkpoint: str, name: str) -> bytes:
        """Return all bytes of a part, without verifying them; raises the errors of `_stream`."""

    @abstractmethod
    def _has_manifest(self, checkpoint: str) -> bool:
        """Return True if the checkpoint is committed."""

    def committed(self) -> list[Manifest]:
        """Return all committed checkpoints, oldest first by (step, attempt); unreadable ones are quarantined.

        Only manifests are read.
        """
        return self._listed({})

    def newest_verified(
        self, fence: int | None = None, upto: tuple[int, int] | None = None
    ) -> tuple[Manifest | None, list[str]]:
        """Return the newest intact checkpoint (None if there is none), and descriptions of the damage to newer ones.

        The descriptions are texts, that of the newest checkpoint first. Every byte is verified, and damaged
        checkpoints are quarantined. Ignores checkpoints of attempts with the number `fence` or higher, and those
        newer than `upto`, a (step, attempt).
        """

        def asked(order: tuple[int, int]) -> bool:
            return (fence is None or order[1] < fence) and (upto is None or order <= upto)

        damage: dict[tuple[int, int], str] = {}
        candidates = [each for each in self._listed(damage) if asked(each.order)]
        found = next((each for each in reversed(candidates) if self._is_whole(each, damage)), None)
        after = (-1, -1) if found is None else found.order
        return found, [damage[order] for order in sorted(damage, reverse=True) if asked(order) and order > after]

    def claimed(self) -> int:
        """Return the number of the newest attempt that has fenced older ones (see `fence`); 0 if there is none.

        It is read from storage at each call, never cached.
        """
        return max(fences_among(self.names()), default=0)

    def verify(self, manifest: Manifest) -> None:
        """Verify every part of a checkpoint; raise CheckpointDamaged, which names the first damaged part.

        Raises NotFound if the checkpoint was deleted meanwhile.
        """
        for part in manifest.parts:
            self._verify(manifest, part)

    def stream(self, manifest: Manifest, name: str, offset: int = 0) -> Iterator[bytes | memoryview]:
        """Return the bytes of a part from an offset on, after verifying the whole part; it is never all in memory.

        A piece is valid until the next one is requested. Raises CheckpointDamaged, or NotFound if the checkpoint was
        deleted meanwhile.
        """
        self._verify(manifest, self._part_of(manifest, name))
        return self._stream(manifest.id, name, offset)

    def read(self, manifest: Manifest, name: str) -> bytes:
        """Return the bytes of a part after verifying them.

        Raises CheckpointDamaged, or NotFound if the checkpoint was deleted meanwhile.
        """
        part = self._part_of(manifest, name)
        with self._present(manifest, name):
            data = self._whole(manifest.id, name)
        seen = Digesting()
        seen.take(data)
        self._compare(manifest, part, seen)
        return data

    def pieces(self, manifest: Manifest, name: str) -> Iterator[bytes | memoryview]:
        """Yield the bytes of a part while verifying them; raise CheckpointDamaged at the end if they have changed.

        The caller must not use any piece before the last one has come. Raises NotFound if the checkpoint was deleted
        meanwhile.
        """
        part, seen = self._part_of(manifest, name), Digesting()
        with self._present(manifest, name):
            for piece in self._stream(manifest.id, name):
                seen.take(piece)
                yield piece
        self._compare(manifest, part, seen)

    def _verify(self, manifest: Manifest, part: Part) -> None:
        for _ in self.pieces(manifest, part.name):
            pass

    def _part_of(self, manifest: Manifest, name: str) -> Part:
        part = manifest.part(name)
        if part is None:
            raise CheckpointDamaged(f"{self._called(manifest)} has no part {name}")
        return part

    def _listed(self, damage: dict[tuple[int, int], str]) -> list[Manifest]:
        found, bad = self._parsed_all()
        if bad:  # a network disk may misread once: quarantine only damage that is read twice
            found, bad = self._parsed_all()
        for checkpoint, error in bad.items():
            damage[checkpoint_order(checkpoint)] = error.message
            self._put_away(checkpoint, error)
        return sorted(found, key=lambda manifest: manifest.order)

    def _parsed_all(self) -> tuple[list[Manifest], dict[str, CheckpointDamaged]]:
        found: list[Manifest] = []
        bad: dict[str, CheckpointDamaged] = {}
        followers = followers_among(self.names())
        for each in self._manifests():
            try:
                manifest = self._parsed(each, followers)
            except CheckpointDamaged as error:
                bad[each.checkpoint] = error
            else:
                found += [manifest] if self._uid in (None, manifest.uid) else []
        return found, bad

    def _parsed(self, found: StoredManifest, followers: Collection[int]) -> Manifest:
        folder = f"{self.where}/{found.checkpoint}"
        judged: dict[str, float] = {}
        for _, data in sorted(found.judged.items(), reverse=True):  # of several values, that of the first evaluation
            judged |= _values(data)
        awaited = not found.judged.keys() >= set(followers)
        manifest = parse(found.data, folder=folder, pinned=found.pinned, judged=judged, awaited=awaited)
        if manifest.id != found.checkpoint:
            raise CheckpointDamaged(f"the manifest in {folder} is that of {manifest.id}")
        return manifest

    def _is_whole(self, manifest: Manifest, damage: dict[tuple[int, int], str]) -> bool:
        try:
            self._verify_twice(manifest)
        except CheckpointDamaged as error:
            damage[manifest.order] = error.message
            self._put_away(manifest.id, error)
            return False
        except NotFound:
            return False
        return True

    def _verify_twice(self, manifest: Manifest) -> None:
        try:
            self.verify(manifest)
        except CheckpointDamaged:
            self.verify(manifest)

    def _put_away(self, checkpoint: str, why: CheckpointDamaged) -> None:
        _log.warning("%s; it is set aside", why.message)
        with contextlib.suppress(OSError):  # read-only storage: the checkpoint cannot be quarantined, but is not used
            self.set_aside(checkpoint)

    @contextlib.contextmanager
    def _present(self, manifest: Manifest, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            if not self._has_manifest(manifest.id):
                raise NotFound(f"{self._called(manifest)} has been deleted") from None
            raise CheckpointDamaged(f"{self._called(manifest)}: part {name} is missing") from None

    def _compare(self, manifest: Manifest, part: Part, seen: Digesting) -> None:
        what = f"{self._called(manifest)}: part {part.name}"
        if seen.size != part.size:
            raise CheckpointDamaged(f"{what} has {seen.size} bytes, and {part.size} were written")
        if seen.digest != part.digest:
            raise CheckpointDamaged(f"{what} has changed since it was written")

    def _called(self, manifest: Manifest) -> str:
        return f"checkpoint {manifest.id} in {self.where}"


def _values(data: bytes) -> dict[str, float]:
    """Return what an evaluation has stored; {} for what is none, as the files may be a user's."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(data)
        if isinstance(found, dict):
            return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
    return {}


def dump_values(metrics: Mapping[str, float]) -> bytes:
    """Return the values of an evaluation as bytes of the file beside the checkpoint."""
    return json.dumps(dict(metrics)).encode()


def follower_name(by: int) -> str:
    """Return the name of the mark by which evaluation `by` follows a trial."""
    return f"follow-{by}"


def judged_name(by: int) -> str:
    """Return the name of the file in a checkpoint's folder with what evaluation `by` has measured."""
    return f"judged-{by}"


def followers_among(names: Iterable[str]) -> list[int]:
    """Return the numbers of the evaluations whose marks are among the names of a trial's entries in the storage."""
    return [int(mark[1]) for name in names if (mark := _FOLLOWER.fullmatch(name))]


def marks_among(names: Iterable[str]) -> list[str]:
    """Return those names of a trial's entries in the storage that are fences and marks of evaluations."""
    return [name for name in names if _FENCE.fullmatch(name) or _FOLLOWER.fullmatch(name)]


def fence_name(attempt: int) -> str:
    """Return the name of the file or object by which an attempt fences older attempts."""
    return f"claim-{attempt}"


def fences_among(names: Iterable[str]) -> list[int]:
    """Return the numbers of the attempts whose fences are among the names of a trial's entries in the storage.

    A fence is an entry `claim-<attempt>`, by which that attempt makes checkpoints of older attempts unusable.
    """
    return [int(fence[1]) for name in names if (fence := _FENCE.fullmatch(name))]


def newest_attempt(names: Sequence[str]) -> int:
    """Return the highest attempt number in the names of fences and checkpoints; 0 if there are none."""
    begun = [attempt_of(name) for name in names if ID.fullmatch(name)]
    return max((*fences_among(names), *begun), default=0)


def attempt_of(checkpoint: str) -> int:
    """Return the number of the attempt that saved a checkpoint, from the checkpoint's name: 2 for `800-2`."""
    return checkpoint_order(checkpoint)[1]


def files_of(manifest: Manifest) -> str:
    """Return a text that changes whenever a file of the checkpoint is replaced or modified.

    Files without a suffix, such as `pinned`, are ignored. In an object store, whose objects are written only as a
    whole, the text consists of the manifest's time and digests.
    """
    if manifest.files:
        return manifest.files
    if "://" in manifest.folder:
        return repr((manifest.at, manifest.parts))
    found = []
    for file in sorted(Path(manifest.folder).glob("*.*")):
        with contextlib.suppress(OSError):  # the checkpoint is being deleted
            stat = file.stat()
            found.append((file.name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return repr(found)
