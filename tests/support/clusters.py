"""Build small clusters for tests of the scheduler, and for the examples of docs/explanation/scheduling.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.cluster.servers import Server
from kernel_backend.model.resources import Node
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.decisions import Decisions
from kernel_backend.scheduler.explain.explain import explain
from kernel_backend.scheduler.notebook_servers import take_in
from kernel_backend.scheduler.requests import Allocation, RequestKey, SlotRequest
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.state import ClusterState

Quotas = Mapping[str, Mapping[str, Any]]


def nodes(count: int, slots: int, kind: str = "cuda", pool: str = "local", prefix: str = "n") -> list[Node]:
    names = [f"{prefix}{number}" for number in range(1, count + 1)]
    return [Node(name=name, kind=kind, address=name, slots=slots, pool=pool) for name in names]


class Cluster:
    """Cluster of nodes, users and groups, with methods to request slots, pass time, and run the scheduler."""

    def __init__(
        self, *of: Node, users: Quotas | None = None, groups: Quotas | None = None, rules: Rules | None = None
    ) -> None:
        def quotas(given: Quotas | None) -> dict[str, Quota]:
            return {name: Quota.model_validate(dict(each)) for name, each in (given or {}).items()}

        self.picture = ClusterState(of, users=quotas(users), groups=quotas(groups), rules=rules)
        self._asks: dict[int, SlotRequest] = {}

    def ask(self, owner: str, slots: int, group: str = "", **more: Any) -> int:
        """Add a slot request of a user and return its number.

        Without a group, it belongs to a group of the user's name.
        """
        number = len(self._asks) + 1
        request = SlotRequest(number, 1, slots, self.picture.at, owner=owner, group=group, **more)
        self._asks[number] = request
        self.picture.add(request)
        return number

    def asks_with(self, number: int, priority: int, by_admin: bool = True) -> None:
        """Change the priority of a queued request."""
        self._asks[number] = replace(self._asks[number], priority=priority, by_admin=by_admin)
        self.picture.add(self._asks[number])

    def at(self, time: float) -> None:
        """Advance the time to `minutes`; each gang commits its first checkpoint a minute after its start."""
        self.picture.pass_to(time)
        for run in list(self.picture.runs.values()):
            if run.committed is None and run.since + 60 <= time:
                self.picture.change(run.key, committed=run.since + 60)

    def decide(self) -> list[str]:
        """Let the scheduler decide and apply its decisions; return as text which gangs start and which must exit."""
        decisions = decide(self.picture)
        self.apply(decisions)
        starts = [f"{start.request.experiment} starts on {_where(start.run(0.0))}" for start in decisions.starts]
        words = {"exit": "goes", "shrink": "shrinks", "grow": "grows"}
        return [*starts, *(f"{_who(each.run.key)} {words[each.change]}: {each.reason}" for each in decisions.preempts)]

    def apply(self, decisions: Decisions) -> None:
        self.picture.reservations = decisions.reservations
        for preempt in decisions.preempts:
            self.picture.ask_to_exit(preempt)
        for start in decisions.starts:
            self.picture.hold(start.run(self.picture.at))

    def servers(self, *present: Server) -> None:
        """Let exactly these notebook servers hold slots."""
        take_in(self.picture, present)

    def ends(self, *numbers: int) -> None:
        """End these gangs for good."""
        for number in numbers:
            self.picture.let_go(RequestKey(number, 1))

    def comes_back(self, *numbers: int) -> None:
        """Let these gangs exit, by preemption or a fault, and requeue their requests."""
        for number in numbers:
            self.picture.let_go(RequestKey(number, 1), replace(self._asks[number], failed_at=self.picture.at))

    def why(self, number: int) -> str:
        """Return why a request waits."""
        return explain(self.picture, self._asks[number]).reason

    def running(self) -> list[int]:
        return sorted(key.experiment for key in self.picture.runs if not key.server)

    def waiting(self) -> list[int]:
        return sorted(request.experiment for request in self.picture.queue)


def _who(key: RequestKey) -> str:
    return str(key) if key.server else str(key.experiment)


def _where(run: Allocation) -> str:
    return " + ".join(f"{len(share.slots)} of {share.node}" for share in run.placement)
