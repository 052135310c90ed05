"""Run gangs of a search one after another in allocations that are kept for them: the part common to all engines."""

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
    """Allocations (such as Slurm jobs) that a pool keeps for several trials of a search, and the gangs in them.

    Each engine has a subclass. A gang's name in its allocation (`step`) is `AllocatedGang.step`.
    """

    kind: ClassVar[type[Allocation]]

    def __init__(self, home: Path, pool: str, folders: GangFolders, submissions: SubmissionFile[G]) -> None:
        self._home, self._pool_name = home, pool
        self._folders, self._submissions = folders, submissions
        self._held: dict[str, A] | None = None
        self._again_at = 0.0

    # What engines differ in

    @abstractmethod
    def _demand(self, job: LaunchSpec) -> Demand:
        """Return the requirements of a gang on its allocation."""

    @abstractmethod
    async def _request(self, job: LaunchSpec, demand: Demand, step: str) -> A:
        """Request an allocation from the engine, and assign the gang named `step` to it.

        When that gang has ended, others with an equal demand may use the allocation. Raises the errors of the engine.
        """

    @abstractmethod
    def _shown(self, held: A) -> HeldAllocation:
        """Return the fields of an allocation that users may see, as of the engine's last answer."""

    @abstractmethod
    async def _end(self, held: A) -> None:
        """Cancel an allocation that waits for its nodes; do nothing if it has its nodes.

        In the second case, the holder processes on the nodes end the allocation when they have read the order to close.
        """

    @abstractmethod
    def _assigned(self, job: LaunchSpec, folder: AttemptFolder, submission: G, held: A) -> G:
        """Write the files from which a holder can start a gang in the allocation `held`.

        `submission` is the engine's record of the gang; a copy that names the allocation is returned.
        """

    @abstractmethod
    async def _assign_again(self, folder: AttemptFolder, submission: G) -> None:
        """Request another allocation for a gang whose allocation ended before the gang started.

        Raises EngineUnavailable if the engine does not answer.
        """

    @abstractmethod
    def _start_order(self, folder: AttemptFolder) -> Mapping[str, str]:
        """Return the fields that the engine adds to the order "start gang X", which the allocation's holders read."""

    # Allocations

    @property
    def known(self) -> Mapping[str, A]:
        """Return the allocations of the pool by id.

        The first call reads those that an earlier process of the service has left in the home folder.
        """
        if self._held is None:
            self._held = {each.record.id: each for each in self._stored()}
            for key in self._folders.listed() if self._held else ():
                self._order_again(key, self._folders.of(key))
        return self._held

    def shown(self) -> list[HeldAllocation]:
        """Return a record of each allocation with the fields that users may see, as of the engine's last answer."""
        return [self._shown(each) for each in list(self.known.values())]

    async def give_back(self, id: str, why: str) -> None:
        """Start no more gangs in an allocation, and end it when its current gang has ended.

        An unknown `id` is ignored, and so is an allocation that is given back already. `why` is shown to users.
        """
        held = self.known.get(id)
        if held is None or held.record.closing:
            return
        _log.info("allocation %s (job %s) is given back: %s", id, held.record.job, why)
        held.change(closing=why)
        held.order("close", why=why)
        await self._end(held)

    async def _ended(self, held: A) -> bool:
        """Clean up after an allocation that the engine has ended; return whether its folder was deleted.

        If a gang was assigned to it and never started, another allocation is requested for the gang, and a later call
        deletes the folder. Otherwise it is deleted at once, unless a gang of the allocation is still listed and has no
        stored end.
        """
        gang = held.gang
        if not gang or gang in held.started or held.record.refused:
            if any(self._is_listed(step, held) for step in held.ordered):
                return False
            self._known.pop(held.record.id, None)  # another call may have come first
            await asyncio.to_thread(held.remove)
            return True
        folder = self._folders.of(key_of(gang))
        submission = self._submissions.read(folder)
        other = submission is None or submission.step != gang or submission.allocation != held.record.id
        if submission is None or other or submission.cancelled or submission.end is not None:
            held.withdraw(gang)  # `other`: it has another allocation, as the service died before it recorded that here
        elif time.monotonic() > self._again_at:
            self._again_at = time.monotonic() + AGAIN_S
            with contextlib.suppress(EngineUnavailable):
                await self._assign_again(folder, submission)
                held.withdraw(gang)
        return False

    def _stored(self) -> list[A]:
        found = (self.kind.opened(path) for path in stored(self._home))
        return [each for each in found if each is not None and each.record.pool == self._pool_name]  # type: ignore[misc]

    def _order_again(self, key: AttemptId, folder: AttemptFolder) -> None:
        """Write the order to start a gang if an earlier process of the service assigned the gang, but died before that.

        A holder ignores an order that it has already received.
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
        """Return whether the gang named `step` was submitted to this allocation and is neither forgotten nor ended."""
        for listed in self._folders.listed([key_of(step)]):
            submission = self._submissions.read(self._folders.of(listed))
            return submission is not None and submission.allocation == held.record.id and submission.end is None
        return False

    # Gangs

    async def place(self, job: LaunchSpec, folder: AttemptFolder, submission: G) -> G:
        """Assign a gang to a free allocation, or request a new one for it; return its record with the allocation in it.

        `submission` is the engine's record of the gang before. Raises the errors of the engine.
        """
        demand = self._demand(job)
        known = [(each.demand, each.record.seconds, self._shown(each)) for each in self.known.values()]
        found = choose(demand, known, time.time())
        if found is not None:
            held = self.known[found.id]
            held.assign(submission.step)  # before the first await, so that no other gang gets it
        else:
            held = await self._request(job, demand, submission.step)
        assigned = self._submissions.write(folder, self._assigned(job, folder, submission, held))
        self._order(held, assigned.step, folder)
        return assigned

    async def release(self, submission: G) -> None:
        """Order that a gang exits: if it runs, it saves a checkpoint first; if it has not started, it never starts."""
        held = self.known.get(submission.allocation)
        if held is not None and submission.step not in held.ended:
            held.order("release", submission.step)
            held.released[submission.step] = time.time()
