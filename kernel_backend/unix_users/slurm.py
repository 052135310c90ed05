"""Run gangs as Slurm jobs of the users who own them: each user's agent calls sbatch, squeue and scancel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from kernel_backend.engines.base import CheckContext, EngineUnavailable
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.engines.slurm.nodes import PartitionNodes
from kernel_backend.errors import InvalidRequest, PlaceUnavailable
from kernel_backend.fairness.owner_limit import OwnerLimit
from kernel_backend.model.cluster.pool_check import PoolFinding
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.resources import Node
from kernel_backend.unix_users.agents import Agents
from kernel_backend.unix_users.engine import NONE, Owner, UnixUserGangs
from kernel_backend.unix_users.notes import GangNotes

ACT_S = 60.0  # for an agent to submit, release or kill a gang: its commands of Slurm may take 20 s each
CHECK_S = 300.0  # for an agent to check a pool
AT_ONCE = 64  # such operations of all users, so that a Slurm that hangs leaves threads for everything else
OF_USER = 4  # such operations of one user


class UnixUserPools:
    """Maker of the engines of pools whose gangs run as the Unix users who own them.

    All of these engines share one limit on the number of operations that wait for Slurm.
    """

    def __init__(self, agents: Agents, owner: Owner, notes: GangNotes) -> None:
        self._agents, self._owner, self._notes = agents, owner, notes
        self._limits = OwnerLimit(AT_ONCE, OF_USER)  # operations of agents that wait for Slurm

    def __call__(self, pool: Pool) -> UnixUserSlurmEngine:
        """Return a new engine for a pool.

        Raises InvalidRequest unless it is a pool of Slurm whose nodes see the users' home folders.
        """
        if pool.settings.engine != "slurm":
            raise InvalidRequest(f"engine: with a spawn helper a pool is of Slurm, not of {pool.settings.engine}")
        if not pool.settings.shared:
            raise InvalidRequest(
                "shared: with a spawn helper the files of gangs are in the users' homes, which the nodes must see"
            )
        return UnixUserSlurmEngine(self._agents, self._owner, self._notes, pool, self._limits)


class UnixUserSlurmEngine(UnixUserGangs):
    """Engine of one Slurm pool; each gang is a job of the user who owns it, with the user's accounts and limits.

    Only the agents of users with gangs are queried for jobs, and each of them runs at most one squeue a second. The
    service itself queries Slurm only for nodes.
    """

    name = SlurmEngine.name
    caps = SlurmEngine.caps.model_copy(update={"per_user_identity": True})
    pause_s = 0.1  # at most ten squeue a second, whatever the number of users

    def __init__(self, agents: Agents, owner: Owner, notes: GangNotes, pool: Pool, limits: OwnerLimit) -> None:
        super().__init__(agents, owner, notes)
        self.pool = pool.name
        self._settings, self._limits = pool.model_dump_json(), limits
        self._nodes = PartitionNodes(pool)

    async def nodes(self) -> Sequence[Node]:
        """Return the nodes of the pool's partition, as sinfo lists them to the service; raise EngineUnavailable."""
        return await self._nodes.newest()

    async def submit(self, job: LaunchSpec, token: str) -> None:
        """Submit the job of a gang as the user who owns it.

        Raises EngineUnavailable if the agent does not answer; the job may then have been submitted all the same.
        """
        try:
            await super().submit(job, token)
        except PlaceUnavailable as error:
            raise EngineUnavailable(error.message) from None

    async def check(self, context: CheckContext) -> Sequence[PoolFinding]:
        """Check the pool as the user who requests the check, and return the findings."""
        known = {name: getattr(context, name) for name in ("python", "checkpoints", "urls", "data")}
        return await asyncio.to_thread(
            partial(self._agents.ask, context.user, "check", _FINDINGS, limit=CHECK_S, **known, **self._where)
        )

    async def _act(self, user: str, op: str, limit: float | None = None, **arguments: Any) -> None:
        async with self._limits.of(user):
            await asyncio.to_thread(self._slowly, user, op, arguments | self._where)

    def _slowly(self, user: str, op: str, arguments: dict[str, Any]) -> None:
        """Have an agent perform an operation that waits for Slurm.

        It does not count as one of the user's concurrent requests, whose number is limited.
        """
        _, link = self._agents.begin(user, op, NONE, limit=ACT_S, **arguments)
        link.close()

    @property
    def _where(self) -> dict[str, Any]:
        """Return the arguments of requests to a user's agent that say in which pool to run: its settings as JSON.

        They are sent with each request, because agents cannot read the service's store, where settings are kept.
        """
        return {"pool": self._settings}


_FINDINGS = TypeAdapter(list[PoolFinding])
