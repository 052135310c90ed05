"""Run gangs as their owners' Unix users, through the owners' agents: on this machine, or in a pool."""

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
    """Base class of engines whose gangs run as their owners' Unix users.

    A note file in the service's folder records each gang. After a restart only agents of users with gangs are therefore
    called, and no agent is trusted to list the gangs.
    """

    pool = LOCAL  # whose gangs these are
    pause_s = 0.0  # between questions to the agents of two users

    def __init__(self, agents: Agents, owner: Owner, notes: GangNotes) -> None:
        self._agents, self._owner, self._notes = agents, owner, notes
        self._looks: dict[str, asyncio.Task[dict[AttemptId, GangStatus]]] = {}
        self._next_look: dict[str, float] = {}  # earliest times of users' next looks
        self._seen: dict[AttemptId, GangStatus] = {}  # last known statuses

    async def _act(self, user: str, op: str, limit: float | None = None, **arguments: Any) -> None:
        """Have a user's agent carry out the operation `op` on a gang, within `limit` seconds."""
        await asyncio.to_thread(partial(self._agents.ask, user, op, NONE, limit=limit, **arguments))

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Start a gang through its owner's agent, from the attempt's launch spec and secret token."""
        user = await self._of(job.id)
        await asyncio.to_thread(self._notes.add, job.id, self.pool)
        await self._act(user, "submit", job=job.model_dump_json(), token=token)
        self._look_anew(user)
        self._seen.pop(job.id, None)  # an agent did not know it before

    async def statuses(self) -> Sequence[GangStatus]:
        """Return the status of every recorded gang.

        If an agent does not answer, its last answer is used, or `running`: slots are freed only if a gang is known to
        have ended.
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
        """Ask a gang to commit a checkpoint and exit, through its owner's agent."""
        user = await self._of(key)
        await self._act(user, "release", key=str(key))
        self._look_anew(user)

    async def kill(self, key: AttemptId) -> None:
        """Kill all processes of a gang; raise Unconfirmed if its agent does not confirm that in time.

        If the owner's account was deleted, an administrator deletes the gang's note file; then the gang counts as
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
        """Return a page of a gang's spool, read by its owner's agent."""
        user, place = await self._of(key), begin.to_json()
        ask = partial(self._agents.ask, user, "records", _PAGE, key=str(key), after=after, begin=place)
        return await asyncio.to_thread(ask)

    async def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        """Return a piece of a rank's log as text: from byte `offset` on, or its last `tail` bytes."""
        user = await self._of(key)
        ask = partial(self._agents.ask, user, "logs", _LOG, key=str(key), rank=rank, offset=offset, tail=tail)
        try:
            return await asyncio.to_thread(ask)
        except OSError as error:
            raise PlaceUnavailable(f"the log cannot be read as {user}: {error.strerror}") from None

    async def set_aside(self, key: AttemptId) -> None:
        """Kill a gang's processes and rename its folder, which belongs to an attempt of a lost database."""
        user = await self._of(key)
        try:
            await self._act(user, "set_gang_aside", limit=KILL_S, key=str(key))
        except (PlaceUnavailable, Forbidden, OSError) as error:
            raise Unconfirmed(f"the folder of attempt {key}, which is another's, is still there: {error}") from None
        self._look_anew(user)

    async def forget(self, key: AttemptId) -> None:
        """Stop reporting the status of an ended gang, by deleting its note file."""
        with contextlib.suppress(OperationFailed, Forbidden, OSError):  # the agent is not asked about this gang again
            user = await self._of(key)
            await asyncio.to_thread(partial(self._agents.ask, user, "forget", NONE, key=str(key), **self._where))
            self._look_anew(user)
        await asyncio.to_thread(self._notes.remove, key)

    @property
    def _where(self) -> dict[str, Any]:
        """Return the arguments by which an agent finds the engine of these gangs.

        None for the engine of its own machine.
        """
        return {}

    async def _look(self, user: str, keys: Sequence[AttemptId]) -> dict[AttemptId, GangStatus]:
        """Return the statuses of these gangs by key; others in the agent's answer are ignored."""
        of = [str(key) for key in keys]
        told = await asyncio.to_thread(partial(self._agents.ask, user, "statuses", _STATUSES, of=of, **self._where))
        found = {each.key: each.model_copy(update={"reason": harmless(each.reason)[:REASON]}) for each in told}
        return {key: found.get(key, _gone(key)) for key in keys}

    def _look_anew(self, user: str) -> None:
        """Drop a pending request for statuses and ask again soon, as its answer may predate a change just made."""
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
    """Engine for gangs that run on this machine as their owners' Unix users."""

    name = "local"
    caps = Caps(atomic_gang=True, preemption=False, quota=False, multi_node=False, per_user_identity=True)

    def __init__(self, agents: Agents, owner: Owner, notes: GangNotes) -> None:
        super().__init__(agents, owner, notes)
        self._node = local_node()

    async def nodes(self) -> Sequence[Node]:
        """Return this machine, the only node."""
        return [self._node]


def _gone(key: AttemptId) -> GangStatus:
    """Return the status `ended` for a gang that its agent does not know, as the gang's folder does not exist."""
    return GangStatus(key=key, phase="ended")


NONE: TypeAdapter[None] = TypeAdapter(None)
_STATUSES = TypeAdapter(list[GangStatus])
_PAGE = TypeAdapter(SpoolPage)
_LOG = TypeAdapter(LogChunk)
