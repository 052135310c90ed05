"""Define the checkpoint storage interface: a checkpoint is complete and verified, or it does not exist.

A checkpoint consists of parts (files) and a manifest. Each part is written first, by the rank that has its data. The
manifest names every part with size and digest, and has a digest of itself. Writing the manifest is the commit: before
it the checkpoint does not exist, after it the checkpoint is complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import xxhash

from kernel_backend.errors import CheckpointDamaged
from kernel_backend.model.record import Record, Value
from kernel_backend.model.views.overview import CheckpointInfo


@dataclass(frozen=True)
class Streamed:
    """Bytes of a checkpoint's file, read in pieces to save memory; each call of `pieces` starts at the beginning."""

    size: int  # total size in bytes
    pieces: Callable[[], Iterator[bytes | memoryview]]

    def __iter__(self) -> Iterator[bytes | memoryview]:
        return self.pieces()


Data = Sequence[bytes | memoryview] | Streamed  # pieces of a part in order; a piece is valid until the next one is read


ORIGIN = "origin"  # entry of a copied model's state: the checkpoint from which it was copied
FROZEN = ".frozen"  # suffix of a part that holds the frozen tensors of another part: `model.frozen`
SHARD = ".shard-"  # precedes the number of a part that holds some rows of another part's tensors: `model.shard-0`


def whose(part: str) -> str:
    """Return the component of the training state (such as `model`) to which a part of a checkpoint belongs.

    Examples
    --------
    >>> whose("model"), whose("model.frozen"), whose("model.shard-3")
    ('model', 'model', 'model')
    """
    return part.removesuffix(FROZEN).partition(SHARD)[0]


class Part(Record):
    """File of a checkpoint: `digest` is the xxh3-128 of its `size` bytes, in hex."""

    name: str
    size: int
    digest: str


class Manifest(Record):
    """Description of a committed checkpoint: trial and step, time of the save, metrics, and the checkpoint's files.

    Parameters
    ----------
    experiment, trial : int
        Number of the experiment and of its trial; both 0 in a plain script.
    uid : str
        Identity of the trial. Numbers may be reused after a database was lost; empty in old checkpoints.
    attempt : int
        Execution of the trial that saved it; in a plain script the number of the save, from 1.
    step : int
        Training step.
    epoch : float
        Epochs trained; 0.0 in a plain script.
    at : float
        Time of the save, in seconds since 1970 (Unix time).
    world : int
        Number of ranks.
    seed : int
        Seed of the training.
    params : dict
        Hyperparameters by name.
    snapshot : str
        Identity of the code and environment.
    numerics : dict of str to str
        Other facts that the bits depend on: torch version, device, threads, kind of CPU.
    metrics : dict of str to float
        Validation metrics at this step; empty if there were none.
    parts : tuple of Part
        Files with tensors: name, size in bytes and digest of each.
    state : dict
        State besides the tensors, as plain JSON.
    folder : str
        Folder or URL of the checkpoint; filled in by listings and never written.
    pinned : bool
        A user wants it kept; filled in by listings and never written.
    files : str
        Identity of the files, see `files_of`; filled in by listings and never written.
    judged : dict of str to float
        Values that evaluations have recorded beside the checkpoint; filled in by listings and never written.
    awaited : bool
        An evaluation that follows the trial has not judged it yet; filled in by listings and never written.

    Examples
    --------
    >>> from daylight import checkpoints
    >>> saved = checkpoints.save("runs/d", {"epoch": 1}, step=100)
    >>> saved.id, saved.step, saved.attempt
    ('100-1', 100, 1)
    """

    experiment: int
    trial: int
    uid: str = ""  # unique id of the trial, since numbers may be reused after a database loss; "" in old checkpoints
    attempt: int
    step: int
    epoch: float
    at: float  # seconds since the epoch
    world: int
    seed: int
    params: dict[str, Value]
    snapshot: str = ""  # id of the snapshot with its definition and environment
    numerics: dict[str, str] = {}  # other inputs that affect the bits: torch, device, threads, CPU
    metrics: dict[str, float] = {}  # validation at this step; empty without one
    parts: tuple[Part, ...]
    state: dict[str, Any] = {}
    folder: str = ""  # its location; filled in by listings and never written
    pinned: bool = False  # a user pinned it; filled in by listings and never written
    files: str = ""  # text that changes with its files, set only by a process that can read them; never written
    judged: dict[str, float] = {}  # values that evaluations recorded; filled in by listings and never written
    awaited: bool = False  # an evaluation has yet to judge it; filled in by listings and never written

    @property
    def id(self) -> str:
        """Return the checkpoint's name, `<step>-<attempt>`."""
        return checkpoint_id(self.step, self.attempt)

    @property
    def order(self) -> tuple[int, int]:
        """Return the key that sorts a trial's checkpoints, oldest first."""
        return self.step, self.attempt

    @property
    def validation(self) -> dict[str, float]:
        """Return the validation metrics at its step: the training's own, and those of evaluations."""
        return self.judged | self.metrics

    @property
    def origin(self) -> str:
        """Return the checkpoint, such as `12.1/500-2`, of which this is a copy to predict with; "" for all others."""
        return str(self.state.get(ORIGIN, ""))

    @property
    def bytes(self) -> int:
        """Return the size of all parts of the checkpoint, in bytes."""
        return sum(part.size for part in self.parts)

    @property
    def info(self) -> CheckpointInfo:
        """Return this checkpoint in the form in which the API lists it."""
        return CheckpointInfo(
            id=self.id, trial=self.trial, step=self.step, epoch=self.epoch, bytes=self.bytes, at=self.at
        )

    def part(self, name: str) -> Part | None:
        """Return the entry of the part with this name.

        Parameters
        ----------
        name : str
            Name of the part, such as ``model``.

        Returns
        -------
        Part or None
            The part; None if the checkpoint has none of this name.
        """
        return next((part for part in self.parts if part.name == name), None)

    def shards(self, name: str) -> list[str]:
        """Return the names of the shards of a part, in the order of their rows.

        Parameters
        ----------
        name : str
            Name of the part, such as ``model``.

        Returns
        -------
        list of str
            Names such as ``model.shard-0``; empty for a training that was not sharded.
        """
        found = [part.name for part in self.parts if part.name.startswith(f"{name}{SHARD}")]
        return sorted(found, key=lambda each: int(each.rpartition("-")[2]))


class QuarantinedCheckpoint(NamedTuple):
    """Damaged checkpoint that listings leave out, but that is not deleted yet; `discard(name)` deletes it.

    `bytes` is its size, and `since` the time when it was quarantined (Unix seconds).
    """

    name: str
    bytes: int
    since: float


class Checkpoints(Protocol):
    """Storage of one trial's checkpoints, which have names `<step>-<attempt>`.

    Checkpoints with another trial's uid are not listed.
    """

    @property
    def where(self) -> str:
        """Return the folder or URL of the checkpoints, for display."""

    def free(self) -> int | None:
        """Return the free space of the storage in bytes; None if unknown."""

    def write(self, checkpoint: str, name: str, data: Data) -> Part:
        """Store one part durably, and return its manifest entry.

        Raises OSError after removing the incomplete part.
        """

    def reuse(self, checkpoint: str, part: Part) -> bool:
        """Store a part by linking or copying an equal part of another checkpoint, without sending its bytes again.

        Returns False, with nothing stored, if no equal part is found or the storage does not support it.
        """

    def commit(self, manifest: Manifest) -> None:
        """Write the manifest, which commits the checkpoint atomically.

        Raises OSError, without a manifest left.
        """

    def committed(self) -> Sequence[Manifest]:
        """Return all committed checkpoints, oldest first by (step, attempt); unreadable ones are quarantined.

        Only manifests are read.
        """

    def newest_verified(
        self, fence: int | None = None, upto: tuple[int, int] | None = None
    ) -> tuple[Manifest | None, list[str]]:
        """Return the newest intact checkpoint (None if there is none), and descriptions of the damage to newer ones.

        The descriptions are texts, that of the newest checkpoint first. Every byte is verified, and damaged
        checkpoints are quarantined. Ignores checkpoints of attempts with the number `fence` or higher, and those
        newer than `upto`, a (step, attempt).
        """

    def verify(self, manifest: Manifest) -> None:
        """Verify every part of a checkpoint; raise CheckpointDamaged, which names the first damaged part.

        Raises NotFound if the checkpoint was deleted meanwhile.
        """

    def read(self, manifest: Manifest, name: str) -> bytes:
        """Return the bytes of a part after verifying them.

        Raises CheckpointDamaged, or NotFound if the checkpoint was deleted meanwhile.
        """

    def stream(self, manifest: Manifest, name: str, offset: int = 0) -> Iterator[bytes | memoryview]:
        """Yield the bytes of a part from an offset on, after verifying the whole part; it is never all in memory.

        A piece is valid until the next one is requested. Raises the same errors as `read`.
        """

    def pieces(self, manifest: Manifest, name: str) -> Iterator[bytes | memoryview]:
        """Yield the bytes of a part while verifying them; raise CheckpointDamaged at the end if they have changed.

        The caller must not use any piece before the last one has come. A piece is valid until the next one is
        requested.
        """

    def set_aside(self, checkpoint: str) -> None:
        """Quarantine a damaged checkpoint: it is not listed any more, but its files stay for inspection."""

    def aside(self) -> Sequence[QuarantinedCheckpoint]:
        """Return the damaged checkpoints that were quarantined and not deleted yet."""

    def discard(self, checkpoint: str) -> None:
        """Delete a checkpoint, committed or not; do nothing if it does not exist, or is committed and pinned.

        It may have been pinned after the caller has listed it.
        """

    def sweep(self, attempt: int) -> None:
        """Delete uncommitted checkpoints of attempts before `attempt`."""

    def clear(self) -> None:
        """Delete the empty storage of an ended trial; do nothing if it still has checkpoints.

        Fences are deleted with it: files by which an attempt has declared checkpoints of older attempts unusable.
        """

    def pin(self, checkpoint: str, pinned: bool) -> None:
        """Pin a checkpoint against all retention rules, or unpin it; raise NotFound."""

    def follow(self, by: int, follows: bool) -> None:
        """Retain each checkpoint of the trial, later ones included, until experiment `by` has judged it, or end that.

        Raises OSError.
        """

    def judge(self, checkpoint: str, by: int, metrics: Mapping[str, float]) -> None:
        """Record beside a checkpoint the values that the evaluation `by` has measured; it awaits that no longer.

        Raises NotFound.
        """

    def fence(self, attempt: int) -> None:
        """Fence older attempts: record durably that this attempt continues the trial; raise OSError.

        Older attempts may still run; the fence keeps their checkpoints from being used. Fences of older attempts may be
        removed.
        """

    def claimed(self) -> int:
        """Return the number of the newest attempt that has fenced older ones (see `fence`); 0 if there is none.

        It is read from storage at each call, never cached.
        """

    def names(self) -> Sequence[str]:
        """Return the names of all entries in the trial's storage; raise OSError.

        They are checkpoints, fences (marks by which an attempt makes checkpoints of older ones unusable) and others.
        """


def checkpoint_id(step: int, attempt: int) -> str:
    """Return the name of a checkpoint, `<step>-<attempt>`."""
    return f"{step}-{attempt}"


def bytes_stored(manifests: Collection[Manifest], linked: bool) -> int:
    """Return the total size of an experiment's checkpoints in bytes.

    A frozen part is a file of tensors that the training does not change, so that it is equal in many checkpoints. If
    `linked`, the storage keeps one file for all equal frozen parts, which is counted once.
    """
    if not linked:
        return sum(each.bytes for each in manifests)
    shared = {part.digest: part.size for each in manifests for part in each.parts if part.name.endswith(FROZEN)}
    own = (part.size for each in manifests for part in each.parts if not part.name.endswith(FROZEN))
    return sum(own) + sum(shared.values())


def digest(data: bytes | memoryview) -> str:
    """Return the xxh3-128 digest of some bytes, in hex."""
    return xxhash.xxh3_128_hexdigest(data)


def dump(manifest: Manifest) -> bytes:
    """Return a manifest as JSON, with an additional field that is a digest of all others."""
    body = _body(manifest)
    return _written({"digest": digest(_canonical(body)), **body})


def manifest_digest(manifest: Manifest) -> str:
    """Return the digest of a manifest, which has the digests of all files: of the whole checkpoint, then."""
    return digest(_canonical(_body(manifest)))


def parse(data: bytes, **listed: Any) -> Manifest:
    """Return the manifest in JSON that `dump` wrote; raise CheckpointDamaged if any bit of it has changed.

    `listed` has the fields that are not in the JSON, such as `folder` and `pinned`.
    """
    try:
        body = json.loads(data)
        if data != _written(body):  # the digest does not cover white space
            raise ValueError("it is not as it was written")
        stated = body.pop("digest")
        if stated != digest(_canonical(body)):
            raise ValueError("its digest does not agree")
        return Manifest(**body, **listed)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:  # ValueError: also pydantic
        where = f" in {listed['folder']}" if listed.get("folder") else ""
        raise CheckpointDamaged(f"the manifest{where} is damaged: {error}") from None


_OF_LISTING = ("folder", "pinned", "files", "judged", "awaited")  # fields that listings fill in


def _body(manifest: Manifest) -> dict[str, Any]:
    unknown = set() if manifest.uid else {"uid"}  # an old manifest, whose digest was computed without `uid`
    return manifest.model_dump(mode="json", exclude={*_OF_LISTING, *unknown})


def _written(body: Any) -> bytes:
    return json.dumps(body, indent=1).encode()


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
