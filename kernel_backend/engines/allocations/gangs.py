"""Run gangs of a search one after another in allocations that are kept for them: what is the same for all engines."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from kernel_backend.engines.allocations.allocation import Allocation, key_of, stored
from kernel_backend.engines.allocations.choice import Demand, choose
from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.folders import GangFolders
from kernel_backend.engines.submission import AllocatedGang, SubmissionFile
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.launch_spec import LaunchSpec

AGAIN_S = 5.0  # between requests of another allocation for gangs whose allocation ended before they began
A = TypeVar("A", bound=Allocation)
G = TypeVar("G", bound=AllocatedGang)
_log = logging.getLogger(__name__)


class AllocatedGangs(ABC, Generic[A, G]):
    """Allocations that a pool keeps for several trials of a search, and the gangs that run in them."""

    kind: ClassVar[type[Allocation]]

    def __init__(self, home: Path, pool: str, folders: GangFolders, submissions: SubmissionFile[G]) -> None:
        self._home, self._pool_name = home, pool
        self._folders, self._submissions = folders, submissions
        self._held: dict[str, A] | None = None
        self._again_at = 0.0

    # What engines differ in

    @abstractmethod
    def _demand(self, job: LaunchSpec) -> Demand:
        """Return what a gang demands of its allocation."""

    @abstractmethod
    async def _request(self, job: LaunchSpec, demand: Demand, folder: AttemptFolder, submission: G) -> A | None:
        """Request an allocation for a gang and others of equal demand, and assign the gang to it.

        Returns None if the gang was ended, as the engine refuses it for good. Raises the errors of the engine.
        """

    @abstractmethod
    def _shown(self, held: A) -> HeldAllocation:
        """Return the public record of an allocation, as the engine last told about it."""

    @abstractmethod
    async def _end(self, held: A) -> None:
        """End an allocation that has not been granted; one that was granted is left to its holders."""

    @abstractmethod
    def _assigned(self, job: LaunchSpec, folder: AttemptFolder, submission: G, held: A) -> G:
        """Write what the start of a gang in an allocation needs; return its submission."""

    @abstractmethod
    def _start_order(self, folder: AttemptFolder) -> Mapping[str, str]:
        """Return what the order to start a gang says besides its name."""

    # Allocations

    @property
    def known(self) -> Mapping[str, A]:
        """Return the allocations by id; the first call reads those that an earlier process of the service has left."""
        if self._held is None:
            self._held = {each.record.id: each for each in self._stored()}
            for key in self._folders.listed() if self._held else ():
                self._order_again(key, self._folders.of(key))
        return self._held

    def shown(self) -> list[HeldAllocation]:
        """Return the public records of all allocations, as of the last look at the engine."""
        return [self._shown(each) for each in list(self.known.values())]

    async def give_back(self, id: str, why: str) -> None:
        """Start no more gangs in an allocation, and end it when its current gang has ended.

        An unknown `id` is ignored; `why` is shown to users.
        """
        held = self.known.get(id)
        if held is None or held.record.closing:
            return
        _log.info("allocation %s (job %s) is given back: %s", id, held.record.job, why)
        held.change(closing=why)
        held.order("close", why=why)
        await self._end(held)

    async def _ended(self, held: A) -> bool:
        """Handle an ended allocation: request another for a gang that has not begun, or else delete its folder.

        Returns whether it was deleted.
        """
        gang = held.gang
        if not gang or gang in held.started or held.record.refused:
            if any(self._is_listed(step, held) for step in held.ordered):
                return False
            del self._known[held.record.id]
            await asyncio.to_thread(held.remove)
            return True
        folder = self._folders.of(key_of(gang))
        submission = self._submissions.read(folder)
        if submission is None or submission.step != gang or submission.cancelled or submission.end is not None:
            held.withdraw(gang)
        elif time.monotonic() > self._again_at:
            self._again_at = time.monotonic() + AGAIN_S
            job = await asyncio.to_thread(folder.job)
            with contextlib.suppress(EngineUnavailable):
                await self.place(job, folder, submission)
                held.withdraw(gang)
        return False

    def _stored(self) -> list[A]:
        found = (self.kind.opened(path) for path in stored(self._home))
        return [each for each in found if each is not None and each.record.pool == self._pool_name]  # type: ignore[misc]

    def _order_again(self, key: AttemptId, folder: AttemptFolder) -> None:
        """Repeat the order to start a gang, as the service may have died before it wrote the order.

        Repeating it is harmless.
        """
        submission = self._submissions.read(folder)
        held = self.known.get(submission.allocation) if submission is not None and submission.end is None else None
        if held is not None and submission is not None and submission.step not in held.ordered:
            self._order(held, submission.step, folder)

    def _order(self, held: A, step: str, folder: AttemptFolder) -> None:
        held.assign(step)
        held.order("start", step, **self._start_order(folder))

    @property
    def _known(self) -> dict[str, A]:
        assert self._held is not None
        return self._held

    def _is_listed(self, step: str, held: A) -> bool:
        """Return whether the gang named `step` in this allocation is still listed, and no end of it is recorded."""
        for listed in self._folders.listed([key_of(step)]):
            submission = self._submissions.read(self._folders.of(listed))
            return submission is not None and submission.allocation == held.record.id and submission.end is None
        return False

    # Gangs

    async def place(self, job: LaunchSpec, folder: AttemptFolder, submission: G) -> None:
        """Assign a gang to a free allocation, or request a new one for it.

        If the engine refuses the request for good, the gang is ended. Raises EngineUnavailable without an answer.
        """
        demand = self._demand(job)
        known = [(each.demand, each.record.seconds, self._shown(each)) for each in self.known.values()]
        found = choose(demand, known, time.time())
        if found is not None:
            held = self.known[found.id]
            held.assign(submission.step)  # before the first await, so that no other gang gets it
        elif (requested := await self._request(job, demand, folder, submission)) is not None:
            held = requested
        else:
            return
        self._submissions.write(folder, self._assigned(job, folder, submission, held))
        self._order(held, submission.step, folder)

    async def release(self, submission: G) -> None:
        """Withdraw a gang that has not begun; let the ranks of a running one save a checkpoint and exit."""
        held = self.known.get(submission.allocation)
        if held is not None and submission.step not in held.ended:
            held.order("release", submission.step)
            held.released[submission.step] = time.time()
