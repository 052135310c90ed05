"""Hold the cluster state: nodes, allocations, requests, reservations, quotas and usage.

It is updated incrementally, so that the cost of a decision depends on the changes, not on the size of the cluster.
Decisions read it without changing it.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from kernel_backend.model.cluster.quotas import Quota, Use
from kernel_backend.model.cluster.site_load import SiteLoad
from kernel_backend.model.cluster.usage import UsageInterval
from kernel_backend.model.resources import LOCAL, Node
from kernel_backend.scheduler.decisions import Preempt
from kernel_backend.scheduler.placement import largest_gang
from kernel_backend.scheduler.queue import Queue
from kernel_backend.scheduler.requests import Allocation, RequestKey, Reservation, SlotRequest
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.run_lengths import PastLengths
from kernel_backend.scheduler.usage import Meter

FREE = Quota()  # default quota: no guarantee, no limit


Name = str | tuple[str, str]  # user, group, or member as (group, user)


class UsageByName(dict[Name, Meter]):
    """Usage meters and quotas of users, or of groups, by name; a meter is created when a name is first charged."""

    def __init__(self, quotas: Mapping[str, Quota], rules: Rules) -> None:
        self.quotas: dict[Name, Quota] = dict(quotas.items())
        self._rules = rules

    def __missing__(self, name: Name) -> Meter:
        meter = self[name] = Meter(self._rules.half_life, self._window(name))
        return meter

    def quota(self, name: Name) -> Quota:
        """Return the quota of a user or group; the default quota if none is set."""
        return self.quotas.get(name, FREE)

    def set(self, name: Name, quota: Quota) -> None:
        """Set the quota of a user or group; recorded usage stays."""
        self.quotas[name] = quota
        if name in self:
            self[name].window = max(self[name].window, self._window(name))

    def replay(self, intervals: Iterable[tuple[Name, float, float | None, int]]) -> None:
        """Rebuild all usage meters from past intervals in any order: (name, start, end or None, number of slots)."""
        self.clear()
        by_name: defaultdict[Name, list[tuple[float, float | None, int]]] = defaultdict(list)
        for name, begun, ended, slots in intervals:
            by_name[name].append((begun, ended, slots))
        for name, theirs in by_name.items():
            self[name].replay(theirs)

    def use(self, name: Name, at: float) -> Use:
        """Return an account's usage for users: slots held now, decayed usage, and slot-seconds in its quota's window.

        The window is the period for which the account's slot-hours are limited.
        """
        meter, window = self.get(name) or Meter(self._rules.half_life), self._window(name)
        return Use(held=meter.held, decayed=meter.decayed(at), window=meter.within(window, at) if window else None)

    def _window(self, name: Name) -> float:
        window = self.quota(name).slot_hours
        return window.window if window else 0.0


class ClusterState:
    """Cluster state on which decisions are based: nodes, allocations, requests, reservations and usage at time `at`."""

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        runs: Iterable[Allocation] = (),
        requests: Iterable[SlotRequest] = (),
        at: float = 0.0,
        *,
        users: Mapping[str, Quota] | None = None,
        groups: Mapping[str, Quota] | None = None,
        reservations: Iterable[Reservation] = (),
        rules: Rules | None = None,
        lengths: PastLengths | None = None,
    ) -> None:
        """Create the state; users and groups without a quota in `users` and `groups` have no limit and no guarantee."""
        self.rules = rules or Rules()
        self.lengths = PastLengths() if lengths is None else lengths
        self.at = at
        self.nodes: dict[str, Node] = {}
        self.free: dict[str, list[int]] = {}  # slot indices, by node
        self._largest: dict[tuple[str, bool, frozenset[str]], int] = {}  # sizes of largest gangs, cached
        self._usual_pool: str | None = None
        self.closed_pools: Mapping[str, str] = {}  # reason why nothing is started in a pool now, by pool
        self.limits_of_pools: Mapping[str, str] = {}  # what limits a pool to fewer slots than its nodes offer
        self.site_loads: Mapping[str, SiteLoad] = {}  # of pools whose site chooses the nodes of gangs, by pool
        self.placed: Collection[RequestKey] = ()  # gangs with nodes of their site whose launchers have not begun yet
        self.runs: dict[RequestKey, Allocation] = {}
        self.returning: Collection[
            RequestKey
        ] = ()  # gangs that have exited, and may have a reservation when they return
        self.queue = Queue()
        self.reservations = tuple(reservations)
        self.users = UsageByName(users or {}, self.rules)
        self.groups = UsageByName(groups or {}, self.rules)
        self.members = UsageByName({}, self.rules)  # usage of a user as a member of a group: (group, user)
        for node in nodes:
            self.set_node(node)
        for run in sorted(runs, key=lambda run: run.since):
            self.hold(run)
        self.fill(requests)

    # Time, nodes and requests

    def pass_to(self, at: float) -> None:
        """Advance the state's time to `at` if that is later.

        Requests whose wait after an error is over by then are queued again.
        """
        self.at = max(at, self.at)
        self.queue.wake(self.at)

    def set_node(self, node: Node) -> None:
        """Add or update a node; allocations on it stay."""
        shares = (share for run in self.runs.values() for share in run.placement if share.node == node.name)
        held = {slot for share in shares for slot in share.slots}
        self.nodes[node.name] = node
        self._forget_counts()
        self.free[node.name] = [slot for slot in range(node.slots) if slot not in held]

    def remove_node(self, name: str) -> None:
        """Remove a node; its allocations stay until its engine reports their gangs as ended."""
        del self.nodes[name], self.free[name]
        self._forget_counts()

    def _forget_counts(self) -> None:
        self._largest.clear()
        self._usual_pool = None

    @property
    def pools(self) -> set[str]:
        """Return the pools of all nodes and all requests."""
        return {node.pool for node in self.nodes.values()} | {pool for pool, lines in self.queue.lines.items() if lines}

    def of_pool(self, pool: str) -> list[Node]:
        """Return the nodes of a pool, including unhealthy and drained ones."""
        return [node for node in self.nodes.values() if node.pool == pool]

    @property
    def usual_pool(self) -> str:
        """Return the pool of requests that name none: the local pool if it exists, else the first pool by name."""
        if self._usual_pool is None:
            pools = {node.pool for node in self.nodes.values()}
            self._usual_pool = LOCAL if LOCAL in pools or not pools else min(pools)
        return self._usual_pool

    def largest_gang(self, pool: str, one_node: bool, excluded: frozenset[str]) -> int:
        """Return the size of the largest gang that a pool can hold, without the excluded nodes."""
        kind = pool, one_node, excluded
        if kind not in self._largest:
            nodes = [node for node in self.of_pool(pool) if node.name not in excluded]
            self._largest[kind] = largest_gang(nodes, one_node)
        return self._largest[kind]

    def usable(self, pool: str) -> list[Node]:
        """Return the nodes of a pool on which gangs may be placed: healthy, not drained, not suspected of faults."""
        return [node for node in self.of_pool(pool) if node.usable]

    def add(self, request: SlotRequest) -> None:
        """Add a new or changed request; its priority is lowered to what quotas allow, unless an admin has set it."""
        request = _limited(request, self._highest(request.owner, request.group))
        before = self.queue.requests.get(request.key)
        if before is not None and not {before.pool, *before.pools} & {request.pool, *request.pools}:
            # It has moved, and its reservation was in another pool.
            self.reservations = tuple(each for each in self.reservations if each.key != request.key)
        if before != request:
            self.queue.add(request, self.at)

    def fill(self, requests: Iterable[SlotRequest]) -> None:
        """Add many requests to a state that has none, which is faster than adding each."""
        highest = cache(self._highest)  # there are far fewer users than requests
        self.queue.fill((_limited(each, highest(each.owner, each.group)) for each in requests), self.at)

    def _highest(self, owner: str, group: str) -> int:
        """Return the highest priority that quotas allow to a user in a group."""
        return max(self.users.quota(owner).priority, self.groups.quota(group).priority)

    def withdraw(self, key: RequestKey) -> None:
        """Remove a request and its reservation."""
        self.queue.remove(key, self.at)
        self.reservations = tuple(each for each in self.reservations if each.key != key)

    def reserved(self) -> Iterator[tuple[Reservation, SlotRequest]]:
        """Yield (reservation, request) for each reservation that is still in force."""
        for each in self.reservations:
            request = self.queue.requests.get(each.key)
            if request is not None and each.stands(request):
                yield each, request

    # Gangs

    def hold(self, run: Allocation, *, charged: bool = False) -> None:
        """Record an allocation and remove its request.

        `charged` is True if the usage meters include the allocation already.
        """
        self.withdraw(run.key)
        self.runs[run.key] = run
        for share in run.placement:
            free = self.free.get(share.node)
            if free is not None:
                self.free[share.node] = [slot for slot in free if slot not in share.slots]
        if not charged:
            self._charge(run, run.slots, run.since)

    def change(self, key: RequestKey, **changes: Any) -> None:
        """Update fields of an allocation, such as the time of its first checkpoint."""
        self.runs[key] = replace(self.runs[key], **changes)

    def ask_to_exit(self, preempt: Preempt) -> None:
        """Record that a gang is requested to exit now; if it only changes its size, reserve slots for its restart."""
        self.change(preempt.run.key, leaving=self.at)
        self.keep_for_return(preempt)

    def keep_for_return(self, preempt: Preempt) -> None:
        """If a preempted gang restarts with another number of slots, reserve the slots for its restart."""
        if preempt.kept is not None:
            self.change(preempt.run.key, returns=True, reservation=preempt.kept)

    def let_go(self, key: RequestKey, back: SlotRequest | None = None, at: float | None = None) -> Allocation:
        """Free the slots of a gang at time `at` (by default now), and return the allocation that it held.

        `back` is the new request of a trial that is requeued; it gets the trial's earlier queue position and
        reservation.
        """
        run = self.runs.pop(key)
        for share in run.placement:
            node = self.nodes.get(share.node)
            for slot in share.slots:
                if node is not None and slot < node.slots:
                    insort(self.free[share.node], slot)
        self._charge(run, -run.slots, self.at if at is None else at)
        if back is not None:
            self.add(back)
            if run.reservation is not None:
                self.reservations = (run.reservation, *self.reservations)
        return run

    def charge(self, intervals: Iterable[UsageInterval]) -> None:
        """Rebuild all usage meters from past and open usage intervals, and from current notebook servers."""
        held = [(each.owner, each.group, each.begun, each.ended, each.slots) for each in intervals]
        held += [(run.owner, run.group, run.since, None, run.slots) for run in self.runs.values() if run.key.server]
        self.users.replay((owner, begun, ended, slots) for owner, _, begun, ended, slots in held)
        self.groups.replay((group, begun, ended, slots) for _, group, begun, ended, slots in held)
        self.members.replay(((group, owner), begun, ended, slots) for owner, group, begun, ended, slots in held)
        for run in self.runs.values():
            if run.waiting:
                self._charge(run, run.slots, self.at)

    def _charge(self, run: Allocation, slots: int, at: float) -> None:
        if run.key.outside:
            return  # it belongs to no account
        for meter in (self.users[run.owner], self.groups[run.group], self.members[run.group, run.owner]):
            if run.waiting:
                meter.waiting += slots
            else:
                meter.hold(slots, at)


def _limited(request: SlotRequest, highest: int) -> SlotRequest:
    """Return a request with its priority capped at `highest`, unless an admin has set it."""
    return replace(request, priority=highest) if request.priority > highest and not request.by_admin else request
