"""Simulate a cluster by discrete events, with a scheduling policy that is the service's own or another."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from kernel_backend.model.cluster.quotas import Quota
from kernel_backend.model.resources import Node
from kernel_backend.model.states import Outcome
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.decisions import Decisions
from kernel_backend.scheduler.requests import Allocation, SlotRequest
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.simulation.workloads import Workload
from kernel_backend.scheduler.speedup import Progress
from kernel_backend.scheduler.state import ClusterState

Policy = Callable[[ClusterState], Decisions]
Kind = Literal["arrive", "finish", "fault", "leave", "commit", "lose", "return", "look"]


class Outage(NamedTuple):
    """Outage of a node that begins at time `at` and lasts `seconds` seconds."""

    node: str
    at: float
    seconds: float


class SimulatedInterval(NamedTuple):
    """Interval in which a job held its slots; `useful` is how many seconds of its work then were not lost.

    The work of an elastic job is measured as the seconds that it would take with its largest number of slots.
    """

    job: int
    begun: float
    ended: float
    useful: float
    slots: int


@dataclass(frozen=True)
class SimulationResult:
    """Result of simulating a scheduling policy with certain jobs."""

    jobs: Mapping[int, Workload]
    slots: int
    intervals: tuple[SimulatedInterval, ...]
    waits: Mapping[int, float]  # by job: seconds from arrival to first start
    ends: Mapping[int, float]  # by job: time of completion
    preempted: int
    until: float


class _Event(NamedTuple):
    at: float
    order: int
    kind: Kind
    job: int
    nth: int  # index of the job's interval; events of an earlier interval are ignored
    node: str = ""


def simulate(
    jobs: Sequence[Workload],
    nodes: Sequence[Node],
    policy: Policy = decide,
    *,
    users: Mapping[str, Quota] | None = None,
    groups: Mapping[str, Quota] | None = None,
    rules: Rules | None = None,
    faults: Callable[[int, int], float | None] = lambda job, nth: None,
    outages: Iterable[Outage] = (),
    checkpoint_every: float = 600.0,
    stall: float = 10.0,
    until: float = float("inf"),
    watch: Callable[[ClusterState, Decisions], None] = lambda cluster, decisions: None,
) -> SimulationResult:
    """Simulate jobs until all have completed, or until the time `until`; the same arguments give the same result.

    `faults(job, nth)` returns after how many seconds the job's interval number `nth` on slots ends in a crash, or None;
    the work since the last checkpoint is lost then (there is one every `checkpoint_every` seconds). A preempted job
    loses no work, but holds its slots for `stall` more seconds; so does an elastic job that shrinks or grows. `users`
    and `groups` have quotas by name. `watch` is called with every cluster state and the decisions about it.
    """
    world = _Simulation(jobs, nodes, policy, ClusterState(nodes, users=users, groups=groups, rules=rules), watch)
    world.faults, world.every, world.stall = faults, checkpoint_every, stall
    world.begin(outages)
    while world.events and world.events[0].at <= until:
        world.step()
    return world.played(until)


class _Simulation:
    """State of a simulation: the cluster state, the jobs' progress and the scheduled events."""

    faults: Callable[[int, int], float | None]
    every: float
    stall: float

    def __init__(
        self,
        jobs: Sequence[Workload],
        nodes: Sequence[Node],
        policy: Policy,
        cluster: ClusterState,
        watch: Callable[[ClusterState, Decisions], None],
    ) -> None:
        self.cluster = cluster
        self._policy, self._watch = policy, watch
        self._jobs = {job.number: job for job in jobs}
        self._slots = sum(node.slots for node in nodes)
        self.events: list[_Event] = []
        self._order = itertools.count()
        self._done: defaultdict[int, float] = defaultdict(float)  # seconds of work that cannot be lost any more
        self._begun: dict[int, float] = {}
        self._nth: Counter[int] = Counter()
        self._intervals: list[SimulatedInterval] = []
        self._waits: dict[int, float] = {}
        self._ends: dict[int, float] = {}
        self._preempted = 0

    def begin(self, outages: Iterable[Outage]) -> None:
        """Schedule the arrivals of jobs and the outages of nodes."""
        for job in self._jobs.values():
            self._plan(job.arrival, "arrive", job.number)
        for outage in outages:
            self._plan(outage.at, "lose", node=outage.node)
            self._plan(outage.at + outage.seconds, "return", node=outage.node)

    def _plan(self, at: float, kind: Kind, job: int = 0, node: str = "") -> None:
        heapq.heappush(self.events, _Event(at, next(self._order), kind, job, self._nth[job], node))

    def step(self) -> None:
        """Advance to the time of the next event, apply all events of that time, then let the policy decide."""
        now = self.events[0].at
        self.cluster.pass_to(now)
        while self.events and self.events[0].at == now:
            event = heapq.heappop(self.events)
            if event.kind in ("arrive", "lose", "return", "look") or event.nth == self._nth[event.job]:
                self._happen(event)
        self._decide()

    def _happen(self, event: _Event) -> None:
        job = self._jobs.get(event.job)
        if event.kind in ("lose", "return"):
            self._node(event.node, healthy=event.kind == "return")
        elif job is None:
            return
        elif event.kind == "arrive":
            self.cluster.add(job.request(job.arrival))
        elif event.kind == "commit":
            self.cluster.change(job.key, committed=event.at)
            self._plan(event.at + self.cluster.rules.min_run, "look")
        elif event.kind == "finish":
            whole = not self._done[job.number]
            run = self._end(job, self._worked(job, event.at), None)
            self._ends[job.number] = event.at
            if whole:
                self.cluster.lengths.add(run.owner, run.slots, run.since, event.at, Outcome.OK)
        elif event.kind == "leave":
            leaving = self.cluster.runs[job.key].leaving
            self._end(job, self._worked(job, event.at if leaving is None else leaving), job.request(job.arrival))
        elif event.kind == "fault":
            self._crash(job)

    def _node(self, name: str, healthy: bool) -> None:
        self.cluster.set_node(self.cluster.nodes[name].model_copy(update={"healthy": healthy}))
        if not healthy:
            for run in [run for run in self.cluster.runs.values() if run.by_node[name]]:
                self._crash(self._jobs[run.key.experiment])

    def _crash(self, job: Workload) -> None:
        worked = self._worked(job, self.cluster.at)
        back = replace(job.request(job.arrival), failed_at=self.cluster.at)
        self._end(job, worked - worked % self.every, back)

    def _worked(self, job: Workload, at: float) -> float:
        return min((at - self._begun[job.number]) * self._speed(job), job.duration - self._done[job.number])

    def _speed(self, job: Workload) -> float:
        return 1.0 if job.least is None else self.cluster.runs[job.key].slots / job.slots

    def _measure(self) -> None:
        """Set the progress of running elastic jobs in the cluster state, as the service would have measured it."""
        for run in [run for run in self.cluster.runs.values() if run.elastic is not None and run.leaving is None]:
            job, begun = self._jobs[run.key.experiment], self._begun[run.key.experiment]
            left = (job.duration - self._done[job.number] - self._worked(job, self.cluster.at)) / self._speed(job)
            times = ((run.slots, 1 / run.slots),)
            self.cluster.change(run.key, progress=Progress(left, self.cluster.at - begun, self.stall, times))

    def _end(self, job: Workload, useful: float, back: SlotRequest | None) -> Allocation:
        now = self.cluster.at
        self._done[job.number] += useful
        held = self.cluster.runs[job.key].slots
        self._intervals.append(SimulatedInterval(job.number, self._begun.pop(job.number), now, useful, held))
        self._nth[job.number] += 1
        return self.cluster.let_go(job.key, back)

    def _decide(self) -> None:
        self._measure()
        decisions = self._policy(self.cluster)
        self._watch(self.cluster, decisions)
        now = self.cluster.at
        self.cluster.reservations = decisions.reservations
        for preempt in decisions.preempts:
            self._preempted += 1
            self.cluster.ask_to_exit(preempt)
            number = preempt.run.key.experiment
            self._nth[number] += 1  # cancels the events of its completion or crash, as it is leaving
            self._plan(now + self.stall, "leave", number)
        for start in decisions.starts:
            job = self._jobs[start.request.experiment]
            self.cluster.hold(start.run(now))
            self._begun[job.number] = now
            self._waits.setdefault(job.number, now - job.arrival)
            left = (job.duration - self._done[job.number]) / self._speed(job)
            if job.least is not None:
                self._plan(now + self.stall / self.cluster.rules.restarts, "look", job.number)
            fault = self.faults(job.number, self._nth[job.number])
            if fault is not None and fault < left:
                self._plan(now + fault, "fault", job.number)
            else:
                self._plan(now + left, "finish", job.number)
            if left > self.every:
                self._plan(now + self.every, "commit", job.number)

    def played(self, until: float) -> SimulationResult:
        """Return the result as of the time `until`; jobs that still run are counted with the work done so far."""
        end = self.cluster.at if until == float("inf") else until
        running = [
            SimulatedInterval(number, begun, end, self._worked(job, end), self.cluster.runs[job.key].slots)
            for number, begun in self._begun.items()
            for job in [self._jobs[number]]
        ]
        return SimulationResult(
            self._jobs, self._slots, (*self._intervals, *running), self._waits, self._ends, self._preempted, end
        )
