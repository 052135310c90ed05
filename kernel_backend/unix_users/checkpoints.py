"""Access checkpoints in the workspaces of their owners, through the owners' agents, which do all work on files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter

from kernel_backend.agent.records import ListedCheckpoint
from kernel_backend.checkpoints.base import Checkpoints, Data, Manifest, Part, QuarantinedCheckpoint, dump, parse
from kernel_backend.checkpoints.storage import CheckpointStorage, Identity
from kernel_backend.checkpoints.streams import size_of, slices
from kernel_backend.checkpoints.verify import ID
from kernel_backend.errors import CheckpointDamaged
from kernel_backend.unix_users.agents import LONG_S, NOTHING, Agents, Body

A = TypeVar("A")
PIECE = 2**20  # bytes sent at once

Owner = Callable[[int], str]  # returns the owner of an experiment


class AgentCheckpoints:
    """Checkpoints of one trial, accessed through its owner's agent; the answers of the agent are validated."""

    def __init__(self, agents: Agents, user: str, experiment: int, trial: int, uid: str) -> None:
        self._agents, self._user = agents, user
        self._trial = {"experiment": experiment, "trial": trial, "uid": uid}

    @property
    def where(self) -> str:
        """Return a text for messages that names owner and trial; only the owner's agent knows the folder itself."""
        return f"the checkpoints of {self._user}/{self._trial['experiment']}/{self._trial['trial']}"

    def free(self) -> int | None:
        """Return how many bytes are free in the file system of the checkpoints; None if unknown."""
        return self._ask("free", _COUNT)

    def write(self, checkpoint: str, name: str, data: Data) -> Part:
        """Store one part (a file) of a checkpoint, and return its entry for the manifest."""
        body = Body(size_of(data), slices(data, PIECE))
        return self._ask("write", _PART, body, LONG_S, checkpoint=checkpoint, name=name, size=body.size)

    def reuse(self, checkpoint: str, part: Part) -> bool:
        """Store a part as a link to an equal part of another checkpoint; return False if that is impossible."""
        return self._ask("reuse", _TRUTH, Body.of(part.model_dump_json().encode()), checkpoint=checkpoint)

    def commit(self, manifest: Manifest) -> None:
        """Commit a checkpoint, by writing its manifest."""
        self._ask("commit", _NONE, Body.of(dump(manifest)))

    def committed(self) -> list[Manifest]:
        """Return all committed checkpoints, oldest first; raise CheckpointDamaged if one belongs to another trial."""
        found = [self._manifest(each) for each in self._ask("committed", _LISTED)]
        return sorted(found, key=lambda manifest: manifest.order)

    def newest_verified(
        self, fence: int | None = None, upto: tuple[int, int] | None = None
    ) -> tuple[Manifest | None, list[str]]:
        """Return the newest intact checkpoint (None if there is none), and descriptions of the damage to newer ones.

        Ignores checkpoints of attempts with the number `fence` or higher, and those newer than `upto`, a (step,
        attempt).
        """
        listed, problems = self._ask("newest_verified", _NEWEST, limit=LONG_S, fence=fence, upto=upto)
        return (self._manifest(listed) if listed else None), problems

    def verify(self, manifest: Manifest) -> None:
        """Verify every part of a checkpoint; raise CheckpointDamaged if one is damaged."""
        self._ask("verify", _NONE, Body.of(dump(manifest)), LONG_S)

    def read(self, manifest: Manifest, name: str) -> bytes:
        """Return the bytes of a part, which the agent has verified; raise CheckpointDamaged if they are damaged."""
        return b"".join(bytes(piece) for piece in self.stream(manifest, name))

    def stream(self, manifest: Manifest, name: str, offset: int = 0) -> Iterator[bytes | memoryview]:
        """Return an iterator over the bytes of a part from an offset on; the agent verifies the whole part first.

        Errors, such as CheckpointDamaged, are raised by this call.
        """
        stream = self._streamed(manifest, name, offset)
        next(stream)  # raises errors here, not at the first use
        return stream

    def pieces(self, manifest: Manifest, name: str) -> Iterator[bytes | memoryview]:
        """Return an iterator over all bytes of a part; the agent verifies the whole part first."""
        return self.stream(manifest, name)

    def set_aside(self, checkpoint: str) -> None:
        """Move a damaged checkpoint to quarantine, so that it is not listed any more."""
        self._ask("set_aside", _NONE, checkpoint=checkpoint)

    def aside(self) -> Sequence[QuarantinedCheckpoint]:
        """Return the damaged checkpoints that are in quarantine."""
        return self._ask("aside", _ASIDE)

    def discard(self, checkpoint: str) -> None:
        """Delete a checkpoint, whether or not it is committed."""
        self._ask("discard", _NONE, checkpoint=checkpoint)

    def sweep(self, attempt: int) -> None:
        """Delete the uncommitted checkpoints that attempts with numbers below `attempt` have left."""
        self._ask("sweep", _NONE, attempt=attempt)

    def clear(self) -> None:
        """Delete the empty folder of a trial without checkpoints, and its records of which attempt may write there."""
        self._ask("clear", _NONE)

    def pin(self, checkpoint: str, pinned: bool) -> None:
        """Pin a checkpoint, so that no rule deletes it, or unpin it."""
        self._ask("pin", _NONE, checkpoint=checkpoint, pinned=pinned)

    def follow(self, by: int, follows: bool) -> None:
        """Retain all checkpoints of the trial until the evaluation `by` has judged each, or end that."""
        self._ask("follow", _NONE, by=by, follows=follows)

    def judge(self, checkpoint: str, by: int, metrics: Mapping[str, float]) -> None:
        """Record beside a checkpoint what the evaluation `by` has measured."""
        self._ask("judge", _NONE, checkpoint=checkpoint, by=by, metrics=dict(metrics))

    def fence(self, attempt: int) -> None:
        """Record that this attempt continues the trial; checkpoints of older attempts are then refused."""
        self._ask("claim", _NONE, attempt=attempt)

    def claimed(self) -> int:
        """Return the highest number of an attempt that was recorded by `fence`; 0 if none was."""
        return self._ask("claimed", _NUMBER)

    def names(self) -> Sequence[str]:
        """Return the names of all files and folders in the trial's checkpoint folder."""
        return self._ask("names", _NAMES)

    def _streamed(self, manifest: Manifest, name: str, offset: int) -> Iterator[bytes]:
        """Yield an empty piece when the agent has verified the part, then the bytes of the part from `offset` on."""
        body, more = Body.of(dump(manifest)), {**self._trial, "name": name, "offset": offset}
        part = manifest.part(name)
        with self._agents.open(self._user, "stream", _NONE, body, LONG_S, **more) as (_, link):
            if part is None or link.size != max(0, part.size - offset):
                raise CheckpointDamaged(
                    f"part {name} of checkpoint {manifest.id} has {link.size} bytes from {offset} on"
                )
            yield b""
            yield from link.pieces()

    def _manifest(self, listed: ListedCheckpoint) -> Manifest:
        manifest = parse(listed.manifest.encode())
        named = manifest.experiment, manifest.trial, manifest.uid
        if named != tuple(self._trial.values()) or ID.fullmatch(manifest.id) is None or not listed.files:
            raise CheckpointDamaged(f"a manifest in {self.where} is that of {named[0]}.{named[1]}/{manifest.id}")
        beside = listed.model_dump(exclude={"manifest"})
        return manifest.model_copy(update={"folder": f"{self.where}/{manifest.id}", **beside})

    def _ask(
        self, op: str, kind: TypeAdapter[A], body: Body = NOTHING, limit: float | None = None, **arguments: Any
    ) -> A:
        return self._agents.ask(self._user, op, kind, body, limit, **self._trial, **arguments)


class UnixUserStorage(CheckpointStorage):
    """Checkpoint storage for the trials of all users: the checkpoints of each trial are in its owner's workspace."""

    def __init__(self, agents: Agents, owner: Owner, identity: Identity) -> None:
        self._agents, self._owner, self._identity = agents, owner, identity
        self._root = ""

    def where(self, experiment: int, trial: int) -> str:
        """Return "": the service does not know where a trial's checkpoints are; the owner's agent fills this in."""
        return ""

    @property
    def linked(self) -> bool:
        """Return True: checkpoints are in folders, so that equal parts can be links to one file."""
        return True

    def largest_number(self) -> int:
        """Return 0: the largest number of an experiment is read from the owners' workspaces instead."""
        return 0

    def open(self, experiment: int, trial: int) -> Checkpoints:
        """Return the checkpoints of a trial; raise NotFound if there is no such trial."""
        return AgentCheckpoints(self._agents, self._owner(experiment), experiment, trial, self.uid(experiment, trial))


_NONE: TypeAdapter[None] = TypeAdapter(None)
_COUNT: TypeAdapter[int | None] = TypeAdapter(int | None)
_NUMBER = TypeAdapter(int)
_TRUTH = TypeAdapter(bool)
_NAMES = TypeAdapter(list[str])
_PART = TypeAdapter(Part)
_LISTED = TypeAdapter(list[ListedCheckpoint])
_NEWEST: TypeAdapter[tuple[ListedCheckpoint | None, list[str]]] = TypeAdapter(tuple[ListedCheckpoint | None, list[str]])
_ASIDE = TypeAdapter(list[QuarantinedCheckpoint])
