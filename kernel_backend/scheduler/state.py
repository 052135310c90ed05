"""What the scheduler looks at: nodes, who holds what on them, who asks, and what each may have.

A picture is kept up to date as things change, so that a decision costs what has changed and not what there is; deciding
reads it and changes nothing.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kernel_backend.model.cluster.quotas import Quota, Use
from kernel_backend.model.cluster.usage import UsageInterval
from kernel_backend.model.resources import LOCAL, Node
from kernel_backend.scheduler.placement import largest_gang
from kernel_backend.scheduler.queue import Queue
from kernel_backend.scheduler.requests import Allocation, RequestKey, Reservation, SlotRequest
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.run_lengths import PastLengths
from kernel_backend.scheduler.usage import Meter

FREE = Quota()  # of whoever has no other: no guarantee, no limit


Name = str | tuple[str, str]  # a user, a group, or a user in a group: (group, user)


class UsageByName(dict[Name, Meter]):
    """What each has used, by name, and his quota; whoever is new has a meter as soon as he is charged."""

    def __init__(self, quotas: Mapping[str, Quota], rules: Rules) -> None:
        self.quotas: dict[Name, Quota] = dict(quotas.items())
        self._rules = rules

    def __missing__(self, name: Name) -> Meter:
        meter = self[name] = Meter(self._rules.half_life, self._window(name))
        return meter

    def quota(self, name: Name) -> Quota:
        """What this one may have."""
        return self.quotas.get(name, FREE)

    def set(self, name: Name, quota: Quota) -> None:
        """Give somebody another quota; what he has used stays."""
        self.quotas[name] = quota
        if name in self:
            self[name].window = max(self[name].window, self._window(name))

    def replay(self, spells: Iterable[tuple[Name, float, float | None, int]]) -> None:
        """Make all meters anew from what was held: (name, from, until or None, slots), in any order."""
        self.clear()
        by_name: defaultdict[Name, list[tuple[float, float | None, int]]] = defaultdict(list)
        for name, begun, ended, slots in spells:
            by_name[name].append((begun, ended, slots))
        for name, theirs in by_name.items():
            self[name].replay(theirs)

    def use(self, name: Name, at: float) -> Use:
        """What somebody holds and has held, as a person reads it."""
        meter, window = self.get(name) or Meter(self._rules.half_life), self._window(name)
        return Use(held=meter.held, decayed=meter.decayed(at), window=meter.within(window, at) if window else None)

    def _window(self, name: Name) -> float:
        window = self.quota(name).slot_hours
        return window.window if window else 0.0


class ClusterState:
    """The cluster at the moment `at`."""

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        runs: Iterable[Allocation] = (),
        asks: Iterable[SlotRequest] = (),
        at: float = 0.0,
        *,
        users: Mapping[str, Quota] | None = None,
        groups: Mapping[str, Quota] | None = None,
        reservations: Iterable[Reservation] = (),
        rules: Rules | None = None,
        lengths: PastLengths | None = None,
    ) -> None:
        """`users` and `groups`: their quotas; whoever is not named has no limit and no guarantee."""
        self.rules = rules or Rules()
        self.lengths = PastLengths() if lengths is None else lengths
        self.at = at
        self.nodes: dict[str, Node] = {}
        self.free: dict[str, list[int]] = {}  # slot indices, by node
        self._largest: dict[tuple[str, bool, frozenset[str]], int] = {}  # gangs, while the nodes stay as they are
        self._usual_pool: str | None = None
        self.runs: dict[RequestKey, Allocation] = {}
        self.queue = Queue()
        self.reservations = tuple(reservations)
        self.users = UsageByName(users or {}, self.rules)
        self.groups = UsageByName(groups or {}, self.rules)
        self.members = UsageByName({}, self.rules)  # what a user has used as one of a group: (group, user)
        for node in nodes:
            self.set_node(node)
        for run in sorted(runs, key=lambda run: run.since):
            self.hold(run)
        self.fill(asks)

    # Time, nodes and asks

    def pass_to(self, at: float) -> None:
        """Let time go on."""
        self.at = max(at, self.at)
        self.queue.wake(self.at)

    def set_node(self, node: Node) -> None:
        """Take in a node, or what has become of it; it keeps who runs on it."""
        shares = (share for run in self.runs.values() for share in run.placement if share.node == node.name)
        held = {slot for share in shares for slot in share.slots}
        self.nodes[node.name] = node
        self._forget_counts()
        self.free[node.name] = [slot for slot in range(node.slots) if slot not in held]

    def remove_node(self, name: str) -> None:
        """A node that is no more. Who ran there is told by its engine."""
        del self.nodes[name], self.free[name]
        self._forget_counts()

    def _forget_counts(self) -> None:
        self._largest.clear()
        self._usual_pool = None

    @property
    def pools(self) -> set[str]:
        """The pools of all nodes, and those that are asked for."""
        return {node.pool for node in self.nodes.values()} | self.queue.lines.keys()

    def of_pool(self, pool: str) -> list[Node]:
        """Its nodes, those included that are away or drained."""
        return [node for node in self.nodes.values() if node.pool == pool]

    @property
    def usual_pool(self) -> str:
        """The pool of experiments that name none: the local one, else the first there is."""
        if self._usual_pool is None:
            pools = {node.pool for node in self.nodes.values()}
            self._usual_pool = LOCAL if LOCAL in pools or not pools else min(pools)
        return self._usual_pool

    def largest_gang(self, pool: str, one_node: bool, excluded: frozenset[str]) -> int:
        """Return the most slots that one gang can ever have in a pool without the excluded nodes."""
        kind = pool, one_node, excluded
        if kind not in self._largest:
            nodes = [node for node in self.of_pool(pool) if node.name not in excluded]
            self._largest[kind] = largest_gang(nodes, one_node)
        return self._largest[kind]

    def usable(self, pool: str) -> list[Node]:
        """The nodes on which something may be started."""
        return [node for node in self.of_pool(pool) if node.healthy and not node.drained]

    def add(self, ask: SlotRequest) -> None:
        """Take in a new ask, or one that has changed; nobody asks with a higher priority than is his, or was given."""
        ask = self._limited(ask)
        if self.queue.asks.get(ask.key) != ask:
            self.queue.add(ask, self.at)

    def fill(self, asks: Iterable[SlotRequest]) -> None:
        """Take in all requests there are, while there are none yet."""
        self.queue.fill(map(self._limited, asks), self.at)

    def _limited(self, ask: SlotRequest) -> SlotRequest:
        highest = max(self.users.quota(ask.owner).priority, self.groups.quota(ask.group).priority)
        return replace(ask, priority=highest) if ask.priority > highest and not ask.by_admin else ask

    def withdraw(self, key: RequestKey) -> None:
        """Forget an ask, and what is reserved for it."""
        self.queue.remove(key, self.at)
        self.reservations = tuple(each for each in self.reservations if each.key != key)

    def reserved(self) -> Iterator[tuple[Reservation, SlotRequest]]:
        """What is kept for those who ask."""
        for each in self.reservations:
            ask = self.queue.asks.get(each.key)
            if ask is not None and each.stands(ask):
                yield each, ask

    # Gangs

    def hold(self, run: Allocation, *, charged: bool = False) -> None:
        """A gang has its slots; its ask has been met. `charged`: the meters know of it."""
        self.withdraw(run.key)
        self.runs[run.key] = run
        for share in run.placement:
            free = self.free.get(share.node)
            if free is not None:
                self.free[share.node] = [slot for slot in free if slot not in share.slots]
        if not charged:
            self._charge(run, run.slots, run.since)

    def change(self, key: RequestKey, **changes: Any) -> None:
        """Something else is known of a gang: a first checkpoint, or that it was asked to go."""
        self.runs[key] = replace(self.runs[key], **changes)

    def let_go(self, key: RequestKey, back: SlotRequest | None = None, at: float | None = None) -> Allocation:
        """The slots of a gang are free again, since `at`; who comes `back` has his place and reservation as before."""
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

    def charge(self, spells: Iterable[UsageInterval]) -> None:
        """Make all meters anew from what was held, those spells included that still last, and by notebook servers."""
        held = [(each.owner, each.group, each.begun, each.ended, each.slots) for each in spells]
        held += [(run.owner, run.group, run.since, None, run.slots) for run in self.runs.values() if run.key.server]
        self.users.replay((owner, begun, ended, slots) for owner, _, begun, ended, slots in held)
        self.groups.replay((group, begun, ended, slots) for _, group, begun, ended, slots in held)
        self.members.replay(((group, owner), begun, ended, slots) for owner, group, begun, ended, slots in held)

    def _charge(self, run: Allocation, slots: int, at: float) -> None:
        for meter in (self.users[run.owner], self.groups[run.group], self.members[run.group, run.owner]):
            meter.hold(slots, at)
