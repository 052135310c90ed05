"""Define allocations that consist of pods; a program in each pod, the holder, gets its orders from the service."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kernel_backend.engines.allocations.allocation import Allocation, AllocationRecord
from kernel_backend.engines.allocations.lines import EVENTS, ORDERS, append_line, read_lines
from kernel_backend.engines.kubernetes.objects import owner_of
from kernel_backend.engines.kubernetes.pods import (
    Finished,
    PodState,
    failed_launcher,
    is_lost,
    out_of_memory,
    pod_state,
    taken_away,
)
from kernel_backend.engines.kubernetes.watch import CachedPods
from kernel_backend.errors import Conflict
from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.model.launch.holder import HolderReport


class PodRecord(AllocationRecord):
    """Properties of an allocation that consists of pods, stored in a file of its folder."""

    nodes: int  # number of pods
    digest: str  # of the token by which its holders call the service
    uid: str = ""  # of the ConfigMap that owns the pods, once all have been created


class PodAllocation(Allocation):
    """Allocation that consists of pods, with a holder in each."""

    kind = PodRecord
    record: PodRecord

    def __init__(self, folder: Path, record: PodRecord) -> None:
        super().__init__(folder, record)
        self._orders, _ = read_lines(folder / ORDERS)
        self._sent = len(self._orders)  # how many orders a holder may have received
        self._changed = asyncio.Event()
        self.broken = False  # whether a pod could not run its program, so that the gang which waits for it fails
        self.deciding = asyncio.Lock()  # held while it is decided whether a gang may still start here

    @property
    def holders(self) -> int:
        """Return how many pods the allocation has."""
        return self.record.nodes

    @property
    def running(self) -> bool:
        """Return whether the holders in all pods have reported that they run."""
        return len(self.begun) >= self.holders

    def order(self, what: str, key: str = "", **more: str) -> None:
        """Append an order to the file of orders, and send it to the holders that wait for one; may raise OSError."""
        super().order(what, key, **more)
        self._orders.append({"order": what, "key": key, **more})
        self.wake()

    def may_begin(self, key: str) -> bool:
        """Return whether the gang named `key` has started or can start at any moment.

        The second is so once a holder may have received the order to start it.
        """
        orders = (each for each in self._orders[: self._sent] if each.get("order") == "start")
        return key in self.started or (key not in self.ended and any(each.get("key") == key for each in orders))

    def store(self, report: HolderReport) -> None:
        """Store the events that a holder reports; an event that is reported again has no further effect.

        May raise OSError. Raises Conflict if the holder is about to start a gang that was withdrawn, and that may now
        be assigned to another allocation.
        """
        for event in report.events:
            if event.event == "started" and event.key in self.ended and event.key not in self.started:
                raise Conflict(f"{event.key} must not start here: it was withdrawn")
            at = min(max(event.at, self.record.at), time.time())  # the node's clock may be wrong
            append_line(self.folder / EVENTS, **event.to_json() | {"at": at}, node=report.node)
        self.refresh()

    def wake(self) -> None:
        """Make the requests of holders that wait for orders look for new ones."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def orders_for(self, node: int, count: int, seconds: float) -> list[dict[str, Any]]:
        """Return the orders for the holder on node number `node`, without the first `count`, which it already has.

        If there is no new one, wait up to `seconds` for it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._ready(node) <= count:
                    await self._changed.wait()
        ready = self._ready(node)
        self._sent = max(self._sent, ready)
        return self._orders[count:ready]

    def in_cluster(self) -> HeldAllocation:
        """Return the fields of this allocation that users may see, from what its holders have reported."""
        ends = min(list(self.begun.values())) + self.record.seconds if self.begun else None
        return self.shown(running=self.running, ends=ends)

    def _ready(self, node: int) -> int:
        """Return how many of the stored orders, from the first on, may be sent to the holder on node number `node`.

        An order to start a gang is held back until the holders in all pods run, and then goes to the first node (0).
        The other nodes get it once the first has reported the start. If the first holder exits before that, the gang
        has thus not started on any node.
        """
        for place, order in enumerate(self._orders if node or not self.running else ()):
            key = order.get("key", "")
            if order.get("order") == "start" and key not in self.started and key not in self.ended:
                return place
        return len(self._orders)


class AllocationPods(NamedTuple):
    """States of the pods of an allocation, by node number: existing pods, and the last known states of deleted ones."""

    here: Mapping[int, PodState]
    gone: Mapping[int, PodState]

    @classmethod
    def of(cls, held: PodAllocation, cached: CachedPods) -> AllocationPods:
        """Return the states of the pods of an allocation, from the cached API objects."""
        here, gone = (
            {number: pod_state(pod) for number, pod in pods.get(held.record.job, {}).items() if _is_of(held, pod)}
            for pods in (cached.pods, cached.gone)
        )
        return cls(here, {number: each for number, each in gone.items() if number not in here})

    @property
    def first_left(self) -> bool:
        """Return whether the pod of node 0 has ended or was deleted, so that no gang can start any more."""
        first = self.here.get(0)
        return 0 in self.gone if first is None else first.over

    def problem(self, ending: Mapping[str, str]) -> str:
        """Return why no more gangs can start in these pods; "" if they can.

        `ending` has the nodes whose shutdown is announced, with the taint that announces it.

        Examples
        --------
        >>> AllocationPods({}, {}).problem({})
        ''
        """
        for each in self.gone.values():
            return f"pod {each.name} is gone"
        for each in self.here.values():
            if each.over:
                return f"pod {each.name} has ended"
            if each.deleted:
                return f"pod {each.name} is being deleted"
            if each.node in ending:
                return f"the end of node {each.node} is announced ({ending[each.node]})"
        return ""

    def broken(self, begun: Collection[int], now: float, away: Collection[str]) -> Finished | None:
        """Return how the waiting gang ends if a pod failed before its holder ran; None if no pod did.

        In that case new pods would fail in the same way, for example because of the image. Pods that Kubernetes took
        away (evicted, preempted, lost) do not count. `begun` has the numbers of the nodes whose holders run, and `away`
        the names of the nodes that are not ready.
        """
        silent = {number: each for number, each in {**self.gone, **self.here}.items() if number not in begun}
        if taken_away(silent.values(), now, away) is not None:
            return None
        numbers = {each.name: number for number, each in silent.items()}
        return out_of_memory(silent.values()) or failed_launcher(silent.values(), (), numbers)

    def over(self, now: float, away: Collection[str], absent: bool) -> bool:
        """Return whether no process of the allocation can run any more.

        `absent` is True if the API server has just confirmed that the allocation has no pod. `away` has the names of
        the nodes that are not ready.
        """
        if not self.here:
            return absent
        return all(each.over or is_lost(each, now, away) for each in self.here.values())


def _is_of(held: PodAllocation, pod: Mapping[str, Any]) -> bool:
    return owner_of(pod) == held.record.uid
