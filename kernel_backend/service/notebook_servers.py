"""Track the notebook servers that the hub reports, and stop idle ones when their slots are needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.cluster.servers import Server
from kernel_backend.scheduler.decisions import Preempt
from kernel_backend.scheduler.notebook_servers import take_back_at
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.service.effective_quotas import EffectiveQuotas
from kernel_backend.store.base import QuotaStore

OURSELVES = "daylight"  # the actor in the audit log


class Servers(Protocol):
    """Access to the hub's notebook servers. Its methods raise ServiceUnreachable if the hub does not answer."""

    async def read(self) -> tuple[Server, ...]:
        """Return the running notebook servers, each with the slots that its spawn options request."""

    async def stop(self, server: Server) -> None:
        """Request that the hub stops a server, without waiting until it has stopped."""


class Notebooks:
    """Tracker of the hub's notebook servers; `changed` is called when the slots that they hold have changed."""

    def __init__(
        self, store: QuotaStore, stored_quotas: EffectiveQuotas, servers: Servers | None, changed: Callable[[], None]
    ) -> None:
        """Create the tracker; without `servers` (no hub) no server is ever stopped."""
        self._store, self._stored_quotas, self._servers, self._changed = store, stored_quotas, servers, changed

    def give(self, present: Sequence[Server]) -> None:
        """Replace the known notebook servers by `present`, those that the hub reports now."""
        before, self._stored_quotas.servers = self._stored_quotas.servers, present
        if _held(before) != _held(present):
            self._changed()

    async def take_back(self, cluster: ClusterState, preempt: Preempt) -> None:
        """Stop a notebook server that the scheduler preempts, if it is still idle, and store an audit entry."""
        if self._servers is None:
            return
        self.give(await self._servers.read())
        now, name = time.time(), preempt.run.key.server
        server = next((each for each in self._stored_quotas.servers if each.full_name == name), None)
        due = None if server is None else take_back_at(cluster, server)
        if server is None or due is None or due > now:
            return
        await self._servers.stop(server)
        detail = (
            f"{preempt.run.slots} slots, nothing done for {(now - server.last_activity) / 60:.0f} min: {preempt.reason}"
        )
        entry = AuditEntry(at=now, who=OURSELVES, act="stop", on=f"notebook server {name}", detail=detail)
        await asyncio.to_thread(self._store.write_down, entry)
        for key in [key for key in cluster.runs if key.server == name]:
            cluster.change(key, leaving=now)


def _held(servers: Sequence[Server]) -> set[Server]:
    """Return copies of the servers whose times of last activity are all 0.

    Two results then differ only if servers or their slots have changed.
    """
    return {server.model_copy(update={"last_activity": 0.0}) for server in servers}
