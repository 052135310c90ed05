"""Run each gang as the Unix user who owns it, through the user's agent: on this machine, or in a pool."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from kernel_backend.agent.protocol import OperationFailed
from kernel_backend.devices import local_node
from kernel_backend.engines.base import Caps, GangStatus, Unconfirmed
from kernel_backend.errors import Forbidden, NotFound, PlaceUnavailable
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import SpoolPage, SpoolPosition
from kernel_backend.model.resources import LOCAL, Node
from kernel_backend.model.views.overview import LogChunk
from kernel_backend.printable import harmless
from kernel_backend.unix_users.agents import Agents
from kernel_backend.unix_users.notes import GangNotes

STATUS_WAIT_S = 1.0  # for a round to wait for agents' answers; then the last known statuses are used
REASON = 300  # characters of why a gang is pending, as its owner's agent says it
KILL_S = 15.0  # for an agent to kill a gang; the agent's own limit is slightly shorter

Owner = Callable[[int], str]  # returns the owner of an experiment
_log = logging.getLogger(__name__)


class UnixUserGangs:
    """Base class of engines that run each gang as the Unix user who owns it, through the user's agent.

    The service records each gang in a file of its own (a note). So it knows after a restart which agents to call, and
    need not trust any agent to list gangs.
    """

    pool = LOCAL  # whose gangs these are
    pause_s = 0.0  # between questions to the agents of two users

    def __init__(self, agents: Agents, owner: Owner, notes: GangNotes) -> None:
        self._agents, self._owner, self._notes = agents, owner, notes
        self._looks: dict[str, asyncio.Task[dict[AttemptId, GangStatus]]] = {}
        self._next_look: dict[str, float] = {}  # earliest times of users' next looks
        self._seen: dict[AttemptId, GangStatus] = {}  # last known statuses

    async def _act(self, user: str, op: str, limit: float | None = None, **arguments: Any) -> None:
        """Have a user's agent carry out the operation `op` on a gang, within `limit` seconds.

        `arguments` are those of the operation; None as the limit means the default of `Agents`.
        """
        await asyncio.to_thread(partial(self._agents.ask, user, op, NONE, limit=limit, **arguments))

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Start a gang through its owner's agent, from the attempt's launch spec and its secret token."""
        user = await self._of(job.id)
        await asyncio.to_thread(self._notes.add, job.id, self.pool)
        await self._act(user, "submit", job=job.model_dump_json(), token=token)
        self._look_anew(user)
        self._seen.pop(job.id, None)  # an agent did not know it before

    async def statuses(self) -> Sequence[GangStatus]:
        """Return the status of every recorded gang.

        If an agent does not answer, its gangs have their last known status, or else `running`: their slots are given to
        others only if the gangs are known to have ended.
        """
        noted, now = await asyncio.to_thread(self._noted), time.monotonic()
        for user in noted.keys() - self._looks.keys():
            if now >= self._next_look.get(user, 0.0):
                self._looks[user] = asyncio.create_task(self._look(user, noted[user]), name=f"gangs of {user}")
                self._next_look[user] = now + self.pause_s * len(noted)
        if self._looks:
            await asyncio.wait(self._looks.values(), timeout=STATUS_WAIT_S)
        for user, look in list(self._looks.items()):
            if look.done():
                del self._looks[user]
                try:
                    self._seen |= look.result()
                except (PlaceUnavailable, Forbidden, OSError):
                    pass  # already logged
                except Exception as error:  # an agent may answer with any error, which concerns only its own gangs
                    _log.warning("how the gangs of %s are is not known: %s", user, error)
        keys = [key for mine in noted.values() for key in mine]
        self._seen = {key: self._seen[key] for key in keys if key in self._seen}
        return [self._seen.get(key, GangStatus(key=key, phase="running")) for key in sorted(keys)]

    async def release(self, key: AttemptId) -> None:
        """Request, through the owner's agent, that a gang saves a checkpoint and exits."""
        user = await self._of(key)
        await self._act(user, "release", key=str(key))
        self._look_anew(user)

    async def kill(self, key: AttemptId) -> None:
        """Kill all processes of a gang; raise Unconfirmed if its owner's agent does not confirm their end in time.

        If the owner's account was deleted, an administrator deletes the gang's note file. The gang then counts as
        ended.
        """
        user, note = await self._of(key), self._notes.path(key)
        try:
            await self._act(user, "kill", limit=KILL_S, key=str(key))
        except (PlaceUnavailable, Forbidden, OSError) as error:
            if isinstance(error, Forbidden) and not note.exists():
                return
            raise Unconfirmed(
                f"whether attempt {key} has ended is not known, and its slots stay taken: {error}. "
                f"Should its account be gone for good: end its processes or job, and remove {note}"
            ) from None
        self._look_anew(user)
        if (seen := self._seen.get(key)) is None or seen.phase != "ended":
            self._seen[key] = _gone(key)

    async def records(self, key: AttemptId, after: int, begin: SpoolPosition) -> SpoolPage:
        """Return a page of records from a gang's spool file, which its owner's agent reads.

        The page begins at offset `begin`, and has only records with numbers above `after`. The spool is the file to
        which rank 0 appends its records.
        """
        user, place = await self._of(key), begin.to_json()
        ask = partial(self._agents.ask, user, "records", _PAGE, key=str(key), after=after, begin=place)
        return await asyncio.to_thread(ask)

    async def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        """Return a part of a rank's log: from byte `offset` on, or its last `tail` bytes."""
        user = await self._of(key)
        ask = partial(self._agents.ask, user, "logs", _LOG, key=str(key), rank=rank, offset=offset, tail=tail)
        try:
            return await asyncio.to_thread(ask)
        except OSError as error:
            raise PlaceUnavailable(f"the log cannot be read as {user}: {error.strerror}") from None

    async def set_aside(self, key: AttemptId) -> None:
        """Kill the processes of an attempt and rename its folder, so that another attempt can have its key.

        That is needed if the folder belongs to an attempt that a restored database does not know. Raises Unconfirmed if
        the agent does not confirm it.
        """
        user = await self._of(key)
        try:
            await self._act(user, "set_gang_aside", limit=KILL_S, key=str(key))
        except (PlaceUnavailable, Forbidden, OSError) as error:
            raise Unconfirmed(f"the folder of attempt {key}, which is another's, is still there: {error}") from None
        self._look_anew(user)

    async def forget(self, key: AttemptId) -> None:
        """Stop reporting the status of a gang that has ended, and delete its note file."""
        with contextlib.suppress(OperationFailed, Forbidden, OSError):  # the agent is not asked about this gang again
            user = await self._of(key)
            await asyncio.to_thread(partial(self._agents.ask, user, "forget", NONE, key=str(key), **self._where))
            self._look_anew(user)
        await asyncio.to_thread(self._notes.remove, key)

    @property
    def _where(self) -> dict[str, Any]:
        """Return the arguments that select the engine by which an agent runs these gangs.

        It is {} here: without arguments, the agent uses the engine of its own machine.
        """
        return {}

    async def _look(self, user: str, keys: Sequence[AttemptId]) -> dict[AttemptId, GangStatus]:
        """Return the statuses of the gangs `keys`, by key, as reported by the agent of their owner, `user`.

        Other gangs that the agent reports are ignored, and gangs that it does not report have ended.
        """
        of = [str(key) for key in keys]
        told = await asyncio.to_thread(partial(self._agents.ask, user, "statuses", _STATUSES, of=of, **self._where))
        found = {each.key: each.model_copy(update={"reason": harmless(each.reason)[:REASON]}) for each in told}
        return {key: found.get(key, _gone(key)) for key in keys}

    def _look_anew(self, user: str) -> None:
        """Make the next call of `statuses` query a user's agent instead of using its last answer.

        The answer to a query that is in progress is dropped, as it may not show a change that was just made.
        """
        self._next_look.pop(user, None)
        if (look := self._looks.pop(user, None)) is not None:
            look.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _noted(self) -> dict[str, list[AttemptId]]:
        found: dict[str, list[AttemptId]] = {}
        for key in self._notes.of(self.pool):
            with contextlib.suppress(NotFound):
                found.setdefault(self._owner(key.experiment), []).append(key)
        return found

    async def _of(self, key: AttemptId) -> str:
        return await asyncio.to_thread(self._owner, key.experiment)


class UnixUserEngine(UnixUserGangs):
    """Engine for gangs on this machine, each of which runs as the Unix user who owns it."""

    name = "local"
    caps = Caps(atomic_gang=True, preemption=False, quota=False, multi_node=False, per_user_identity=True)

    def __init__(self, agents: Agents, owner: Owner, notes: GangNotes) -> None:
        super().__init__(agents, owner, notes)
        self._node = local_node()

    async def nodes(self) -> Sequence[Node]:
        """Return this machine as the only node."""
        return [self._node]


def _gone(key: AttemptId) -> GangStatus:
    """Return the status `ended`, for a gang that its agent does not know because the gang has no folder."""
    return GangStatus(key=key, phase="ended")


NONE: TypeAdapter[None] = TypeAdapter(None)
_STATUSES = TypeAdapter(list[GangStatus])
_PAGE = TypeAdapter(SpoolPage)
_LOG = TypeAdapter(LogChunk)
