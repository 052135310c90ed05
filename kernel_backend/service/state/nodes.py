"""Provide the nodes of all pools, and mark nodes that are drained or suspected of faults: they get no gangs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kernel_backend.engines.base import Engine
from kernel_backend.lifecycle.node_health import REMEMBERED_S, faults_of, suspicions
from kernel_backend.model.cluster.accounts import AuditEntry
from kernel_backend.model.node_faults import NodeFault, NodeName, Suspicion
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.resources import Node
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Attempt
from kernel_backend.scheduler.state import ClusterState
from kernel_backend.service.effective_quotas import EffectiveQuotas
from kernel_backend.store.base import QuotaStore

_log = logging.getLogger(__name__)


class MarkedNodes:
    """List of the nodes of all pools, marked if drained or if suspected of faults (suspect); those get no new gangs.

    Faults that attempts meet are stored, so that a restarted service suspects the same nodes.
    """

    def __init__(
        self,
        store: QuotaStore,
        engine: Engine,
        stored_quotas: EffectiveQuotas,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the list, and read the faults of the last days from the store; blocks."""
        self._store, self._engine, self._stored_quotas, self._clock = store, engine, stored_quotas, clock
        self._faults = store.node_faults(clock() - REMEMBERED_S)
        self._last: Sequence[Node] = ()
        self._marked: dict[str, tuple[Node, dict[str, Any], Node]] = {}

    async def newest(self) -> Sequence[Node]:
        """Return all nodes as the engines report them now, marked as drained or suspect."""
        nodes = await self._engine.nodes()
        suspect = self.suspicions(nodes)
        self._last = [self._with_marks(node, suspect.get(name_of(node))) for node in nodes]
        return self._last

    def suspicions(self, nodes: Iterable[Node]) -> Mapping[NodeName, Suspicion]:
        """Return why nodes are suspected of faults, by node; `nodes` must include all nodes of their pools.

        Nodes without suspicion are left out.
        """
        if not self._faults:
            return {}
        nodes = list(nodes)
        found = suspicions(self._faults, Counter(node.pool for node in nodes), self._clock())
        return {name: each for node in nodes if (each := found.get(name := name_of(node))) is not None}

    def left_out(self, pool: str) -> tuple[str, ...]:
        """Return the nodes of a pool that must get no new gangs, by the names that the pool's engine uses."""
        own = self._stored_quotas.drained
        found = (node for node in self._last if node.pool == pool and (node.suspect or node.name in own))
        return tuple(sorted(node.engine_name for node in found))

    async def blame(self, faults: Iterable[NodeFault]) -> frozenset[NodeName]:
        """Store faults of nodes; return the names of those of these nodes that now get no new gangs."""
        names = set()
        for fault in faults:
            if await asyncio.to_thread(self._store.add_node_fault, fault, self._clock() - REMEMBERED_S):
                _log.warning("node %s of pool %s: %s (attempt %s)", fault.node, fault.pool, fault.reason, fault.attempt)
                self._faults = [*self._faults, fault]
            names.add(fault.name)
        if not names:
            return frozenset()
        suspect = self.suspicions(self._last or await self.newest())
        return frozenset(name for name in names if name in suspect and suspect[name].left_out)

    async def blame_for(self, attempt: Attempt, outcome: Outcome, result: AttemptResult | None) -> list[NodeFault]:
        """Store the faults of nodes that ended an attempt; return those faults whose nodes now get no new gangs.

        The faults are derived from the attempt's outcome and the result that its launchers have written.
        """
        away = {node.engine_name for node in self._last if node.pool == attempt.pool and not node.healthy}
        faults = faults_of(attempt, outcome, result, away, self._clock())
        left_out = await self.blame(faults)
        return [fault for fault in faults if fault.name in left_out]

    async def forgive(self, node: Node, entry: AuditEntry) -> bool:
        """Delete the faults of a node, so that it may get gangs again, and store the audit entry.

        Return False if the node has no faults.
        """
        name = name_of(node)
        known = await asyncio.to_thread(self._store.forgive_node, name, entry)
        self._faults = [fault for fault in self._faults if fault.name != name]
        return known

    def _with_marks(self, node: Node, suspicion: Suspicion | None) -> Node:
        """Return a node marked as drained or suspect, or itself if it is neither.

        The same object is returned as long as nothing changes, so that comparing is fast.
        """
        marks: dict[str, Any] = {}
        if node.name in self._stored_quotas.drained and not node.drained:
            marks["drained"] = True
        if suspicion is not None and suspicion.left_out:
            marks["suspect"] = True
        if not marks:
            return node
        known = self._marked.get(node.name)
        if known is None or known[0] is not node or known[1] != marks:
            known = self._marked[node.name] = node, marks, node.model_copy(update=marks)
        return known[2]


def name_of(node: Node) -> NodeName:
    """Return a node's pool, and its name in the engine of that pool."""
    return NodeName(node.pool, node.engine_name)


def set_nodes(cluster: ClusterState, nodes: Sequence[Node]) -> bool:
    """Replace the nodes of a cluster state; return whether that may change which requests can be placed."""
    known = cluster.nodes
    # Identity first: comparing thousands of records field by field is slow.
    changed = [node for node in nodes if (old := known.get(node.name)) is not node and old != node]
    gone = cluster.nodes.keys() - {node.name for node in nodes}
    matters = bool(gone) or any(_matters(known.get(node.name), node) for node in changed)
    for node in changed:
        cluster.set_node(node)
    for name in gone:
        cluster.remove_node(name)
    return matters


def _matters(old: Node | None, new: Node) -> bool:
    """Return whether a node has changed from `old` (None: it is new) to `new` in a way that affects placements."""
    same = {"state": new.state, "reason": new.reason, "held_by": new.held_by}
    return old is None or old.model_copy(update=same) != new
