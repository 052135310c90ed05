"""Simulate an engine without processes: gangs are entries of a dictionary, and a test can make it fail or be slow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kernel_backend.engines.base import Caps, GangStatus
from kernel_backend.errors import NotFound
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.reports import SpoolPage, SpoolPosition
from kernel_backend.model.resources import Node
from kernel_backend.model.states import Outcome
from kernel_backend.model.views.overview import LogChunk


class MemoryEngine:
    """Engine of the given nodes; with `places=False`, its own queue chooses the nodes."""

    name = "memory"

    def __init__(self, nodes: Sequence[Node] = (), places: bool = True) -> None:
        self.caps = Caps(
            atomic_gang=True, preemption=False, quota=False, multi_node=True, per_user_identity=False, places=places
        )
        self.there = list(nodes)
        self.gangs: dict[AttemptId, GangStatus] = {}
        self.calls: list[tuple[str, AttemptId]] = []
        self.broken = ""  # what it says of each question; "": it answers
        self.answers = asyncio.Event()  # cleared: its answers are on their way for as long
        self.answers.set()

    async def nodes(self) -> Sequence[Node]:
        await self._answer()
        return list(self.there)

    async def submit(self, job: LaunchSpec, token: str) -> None:
        self._check()
        self.gangs[job.id] = GangStatus(key=job.id, phase="running")

    async def statuses(self) -> Sequence[GangStatus]:
        found = list(self.gangs.values())
        await self._answer()
        return found

    async def release(self, key: AttemptId) -> None:
        self._act("release", key)

    async def kill(self, key: AttemptId) -> None:
        self._act("kill", key)
        if key in self.gangs:
            self.gangs[key] = GangStatus(key=key, phase="ended", outcome=Outcome.KILLED)

    async def records(self, key: AttemptId, after: int, begin: SpoolPosition) -> SpoolPage:
        self._act("records", key)
        return SpoolPage(records=(), end=begin, last=True)

    async def logs(self, key: AttemptId, rank: int, offset: int = 0, tail: int | None = None) -> LogChunk:
        self._act("logs", key)
        raise NotFound(f"attempt {key} has no rank {rank}")

    async def set_aside(self, key: AttemptId) -> None:
        self._act("set_aside", key)
        self.gangs.pop(key, None)

    async def forget(self, key: AttemptId) -> None:
        self._act("forget", key)
        self.gangs.pop(key, None)

    def _act(self, what: str, key: AttemptId) -> None:
        self._check()
        self.calls.append((what, key))

    async def _answer(self) -> None:
        await self.answers.wait()
        self._check()

    def _check(self) -> None:
        if self.broken:
            raise OSError(self.broken)
