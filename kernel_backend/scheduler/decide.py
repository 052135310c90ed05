"""Decide which requests start now and which gangs are preempted.

This is pure computation: nothing is started, stored or awaited. Requests that an admin has put first are served
first, then those within a guarantee, then those with a reservation, then the others by priority and fair share. Slots
for which nobody waits then go to elastic gangs. See docs/explanation/scheduling.md, whose examples are tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property

from kernel_backend.model.experiment import FIRST
from kernel_backend.model.resources import Node, Placement, Share
from kernel_backend.scheduler.backfill import Fit, fit
from kernel_backend.scheduler.backfill_risk import STEPS, Due, due, late, risk_of
from kernel_backend.scheduler.decisions import Decisions, Preempt, Start
from kernel_backend.scheduler.elastic import enlarged, growth, kept_for, may_grow, unplaced
from kernel_backend.scheduler.fair_share import FairOrder
from kernel_backend.scheduler.near_data import near_data
from kernel_backend.scheduler.order import PoolQueue, RequestClass, reserved_for
from kernel_backend.scheduler.placement import Capacity, SlotsByNode, feasible
from kernel_backend.scheduler.preemption import Source, beyond, preemptible_now, surpluses, victims, whole
from kernel_backend.scheduler.queue import UserQueue
from kernel_backend.scheduler.quotas import Ledger, borrowed_slots
from kernel_backend.scheduler.requests import Allocation, RequestKey, Reservation, Shape, SlotRequest
from kernel_backend.scheduler.reservations import Plan, SlotRelease, plan, releases
from kernel_backend.scheduler.site import Site, at_site, given_back, planned_starts, site_of
from kernel_backend.scheduler.state import ClusterState, Name

MOST_KEPT = 32  # maximum number of requests per pool with a reservation


def decide(cluster: ClusterState) -> Decisions:
    """Return which requests start now, which gangs are preempted, and which reservations hold from now on."""
    ledger = Ledger(cluster)
    across = _AcrossPools({each.key: each for each, _ in cluster.reserved()})
    across.preempts = {each.run.key: each for each in _beyond_limits(cluster, ledger)}
    passes = across.passes = {pool: _Pass(cluster, pool, ledger, across) for pool in sorted(cluster.pools)}
    # Limits and guarantees span pools, so each class of requests is served in all pools before the next class.
    for requests in RequestClass:
        for each in passes.values():
            each.serve(requests)
    if across.left - across.served:  # in the pool to which they were left, others came first
        for each in passes.values():
            each.serve(RequestClass.OTHER)
    for each in passes.values():
        each.serve_site_queue()
    for each in passes.values():
        each.serve_elastic()
        each.move_near_data()
    return Decisions(
        tuple(start for each in passes.values() for start in each.starts),
        tuple(across.preempts.values()),
        tuple(across.reserved.values()),
    )


class _AcrossPools:
    """Decisions shared by all pools, because a request that waits in several pools is served in only one of them."""

    def __init__(self, reserved: dict[RequestKey, Reservation]) -> None:
        self.passes: Mapping[str, _Pass] = {}
        self.reserved = reserved
        self.served: set[RequestKey] = set()  # requests that have been decided
        self.preempts: dict[RequestKey, Preempt] = {}
        self.left: set[RequestKey] = set()  # requests that a pool has left to another one that had room for them


def _beyond_limits(cluster: ClusterState, ledger: Ledger) -> Iterator[Preempt]:
    """Yield decisions to preempt gangs of users and groups that hold more slots than their limit.

    An account holds more than its limit after an admin has lowered the limit.
    """
    gone: Counter[tuple[str, Name]] = Counter()
    runs = cluster.runs.values()
    for kind, name, excess in ledger.excess():
        theirs = [run for run in runs if (run.owner if kind == "user" else run.group) == name and run.key.is_gang]
        leaving = sum(run.freed for run in theirs if run.leaving is not None)
        for each in beyond(preemptible_now(theirs, cluster.rules, cluster.at), excess - leaving - gone[kind, name]):
            gone["user", each.run.owner] += each.slots
            yield _preempt(each, f"the limit of {kind} {name} is below what is held", cluster.at)


def _preempt(source: Source, reason: str, at: float) -> Preempt:
    """Return the decision to preempt a gang, which gives up the slots of `source`.

    If an elastic gang gives up only a part of its slots, it restarts with its minimum number of slots, which is
    reserved for it meanwhile.
    """
    if source.whole:
        return Preempt(source.run, reason)
    return Preempt(source.run, reason, "shrink", kept_for(source.run, at))


class _Pass:
    """Decisions about the requests of one pool."""

    def __init__(self, cluster: ClusterState, pool: str, ledger: Ledger, across: _AcrossPools) -> None:
        self._cluster, self._pool, self._ledger, self._at = cluster, pool, ledger, cluster.at
        self._across, self._served, self._reserved = across, across.served, across.reserved
        self._nodes = cluster.usable(pool)
        self._capacities = _capacities(cluster, self._nodes)
        self._plans: list[Plan] = []
        self._headed = False  # whether the first request in order has a reservation
        self._waiting = PoolQueue(cluster, pool, across.served)
        self._full: set[Shape] = set()  # shapes that fit nowhere
        self._taken: Counter[str] = Counter()
        self._dues: dict[RequestKey, Due] = {}  # cached results of `_due`
        self.starts: list[Start] = []

    def serve(self, requests: RequestClass) -> None:
        """Serve the requests of a class."""
        if requests is RequestClass.RESERVED:
            self._serve_all_reserved()
            return
        for lines in self._waiting.lines(requests, self._ledger):
            self._walk(lines, guaranteed=requests is RequestClass.GUARANTEED)

    def _serve_all_reserved(self) -> None:
        """Serve the requests of `reserved_for`; those that cannot start now get or keep a reservation."""
        since = self._at - self._cluster.rules.patience
        for request in reserved_for(self._cluster, self._pool):
            reservation = self._reserved.get(request.key)
            if request.key not in self._served and len(self._plans) < MOST_KEPT:
                starves = self._cluster.queue.starves(request, self._at - self._cluster.rules.starving)
                firm = starves or (reservation is not None and reservation.since <= since)
                self._serve_reserved(request, firm, at_risk=not starves)

    def serve_elastic(self) -> None:
        """Give free slots that nobody waits for to elastic gangs, whose number of slots may change.

        Gangs that start now get more than their least number of slots; then at most one running gang is made larger.
        """
        starting = [start for start in self.starts if start.request.larger]
        growing = [run for run in self._elastic if may_grow(run, self._cluster.rules, self._at)]
        site, hidden = self._site, self._pool in self._cluster.site_loads and self._site is None
        capacities = self._capacities if site is None else site.capacities
        free = not hidden and any(capacity.total for capacity in capacities.values())
        if not (starting or growing) or not free or self._somebody_waits():
            return
        whole = site.whole if site is not None else None
        least = {start.request.key: start.by_node for start in starting} if site is None else site.starts
        where = enlarged(starting, capacities, self._ledger, least, whole)
        if site is not None:
            where = planned_starts(starting, site.starts | where, self._capacities)
        if where:
            self._place_again(where)
        usable = {node.name for node in (self._nodes if site is None else site.nodes)}
        growing = [run for run in growing if run.key not in self._across.preempts]
        growing = [run for run in growing if self._held(run).by_node.keys() <= usable]
        if self._pool not in self._cluster.closed_pools and not any(run.returns for run in self._elastic):
            grows = growth(growing, capacities, self._ledger, self._at, self._held, whole)
            if grows is not None:
                self._across.preempts[grows.run.key] = grows

    def move_near_data(self) -> None:
        """Place starts on equally good nodes that have their data; call it when all else is decided."""
        prefer = any(start.request.preferred for start in self.starts)
        if not prefer or self._pool in self._cluster.site_loads:  # there, the site chooses the nodes
            return
        free = {node.name: len(self._cluster.free[node.name]) for node in self._nodes}
        fixed = {each.node for each in self._plans} | {each.node for each in self._reserved.values()}
        if where := near_data(self.starts, self._nodes, free, fixed):
            self._place_again(where)

    def _place_again(self, where: Mapping[RequestKey, SlotsByNode]) -> None:
        """Give all starts their slots anew; `where` has the nodes of those that get others."""
        self._taken.clear()
        self.starts = [
            replace(start, placement=self._placed(where.get(start.request.key, start.by_node))) for start in self.starts
        ]

    def serve_site_queue(self) -> None:
        """Shrink elastic gangs for those who wait in the pool's external queue.

        Such a queue is that of a scheduler like Slurm, which itself chooses the nodes of gangs and of other jobs.
        """
        rules, preempts = self._cluster.rules, self._across.preempts
        going = unplaced(self._elastic, self._cluster.placed, rules, self._at)
        preempts |= {each.run.key: each for each in going if each.run.key not in preempts}
        if self._site is None or not self._site.waiting:
            return
        candidates = [run for run in preemptible_now(self._elastic, rules, self._at) if run.key not in preempts]
        for name, source in given_back(self._site, candidates, self._leaving(), self._plans):
            preempts[source.run.key] = _preempt(source, f"{name} waits for slots of pool {self._pool}", self._at)

    def _somebody_waits(self) -> bool:
        """Return whether anyone waits for slots of the pool: a request, or a gang that restarts with another size."""
        queue = self._cluster.queue
        if self._plans or self._cluster.returning or (self._site is not None and self._site.waiting):
            return True
        if any(queue.requests[key].within(self._pool) for key in queue.ineligible):
            return True
        return any(self._ledger.stopped_by(each) is None and self._feasible(each) for each in self._waiting.heads())

    def _walk(self, lines: list[UserQueue], guaranteed: bool) -> None:
        """Serve requests one by one, in fair-share order, until none of them can start.

        `lines` are user queues: each has the requests of one user, group and priority. With `guaranteed`, only requests
        within a guarantee are served.
        """
        if self._over(guaranteed) or not lines:
            return
        fair_order = FairOrder(lines, self._ledger)
        while (line := fair_order.next()) is not None and not self._over(guaranteed):
            fair_order.over(again=self._serve(line, guaranteed))

    def _over(self, guaranteed: bool) -> bool:
        """Return whether serving more requests is pointless, because none could start or get a reservation any more.

        With `guaranteed`, return this for requests within a guarantee, which may preempt other gangs even if no slot is
        free.
        """
        if guaranteed:
            return len(self._plans) >= MOST_KEPT
        return self._headed and not any(capacity.total for capacity in self._capacities.values())

    def _serve(self, line: UserQueue, guaranteed: bool) -> bool:
        """Start the first request of a user queue that can start now, if any.

        The queue has the requests of one user, group and priority. Return True if a request was served, so that the
        queue may be served again; False if none could be. A request within a guarantee (`guaranteed`) that finds too
        few free slots may preempt gangs that hold borrowed slots, which serves it as well. Otherwise, the first request
        of the pool that does not fit gets a reservation.
        """
        for request in self._waiting.next_of_each_shape(line):
            if guaranteed and not self._ledger.guaranteed(request):
                continue
            if self._ledger.stopped_by(request) or not self._serves(request):
                continue
            if request.shape not in self._full and self._start(request):
                return True
            self._full.add(request.shape)
            if not guaranteed and self._start_at_risk(request):
                return True
            if guaranteed and self._take_back(request, borrowed=True):
                return True
            if not guaranteed and not self._headed:
                self._keep(request, firm=request.priority >= FIRST, at_risk=True)
        return False

    def _serve_reserved(self, request: SlotRequest, firm: bool, at_risk: bool) -> None:
        if not self._serves(request):
            return
        if not self._ledger.stopped_by(request):
            if not self._start(request):
                self._keep(request, firm, at_risk)
        elif firm and not self._ledger.never(request) and self._feasible(request):
            # Others of the same owner and group must not keep using up the limit that it waits for.
            self._served.add(request.key)
            self._ledger.hold_back(request)

    # Requests that wait in several pools

    def _serves(self, request: SlotRequest) -> bool:
        """Return whether this pool is the one that serves a request, which may wait in several pools.

        The first of the request's pools with enough free slots now serves it. If there is none, it is the first pool
        that could ever hold the request, so that only one pool makes a reservation and preempts gangs for it.
        """
        if not request.pools:
            return True
        theirs = [self._across.passes[pool] for pool in request.pools if pool in self._across.passes]
        ready = next((each for each in theirs if each.has_capacity(request)), None)
        if ready is not None and ready is not self:
            self._across.left.add(request.key)
        serves = ready or next((each for each in theirs if each.open and each._feasible(request)), None)
        return serves is self

    def has_capacity(self, request: SlotRequest) -> bool:
        """Return whether a request could start in this pool now; nothing is started or changed.

        A pool in which Daylight's gangs wait in an external queue, such as Slurm's, counts as full: a further job would
        wait behind them.
        """
        if not self.open or request.shape in self._full or any(run.waiting for run in self._runs):
            return False
        if fit(request, self._capacities, [copy(each) for each in self._plans], self._at) is not None:
            return True
        self._full.add(request.shape)
        return False

    @property
    def open(self) -> bool:
        """Return whether new gangs may be started in this pool now.

        False if the pool's engine has a problem, or if enough gangs wait in its external queue, such as Slurm's.
        """
        return self._pool not in self._cluster.closed_pools

    # Starting requests and making reservations

    def _start(self, request: SlotRequest) -> bool:
        return self._take(request, fit(request, self._capacities, self._plans, self._at))

    def _start_at_risk(self, request: SlotRequest) -> bool:
        """Start a request on slots that are reserved for another one, if it will probably end before they are needed.

        Return whether it was started.
        """
        most = max((each.risk for each in self._plans), default=0.0)
        if most <= 0 or (
            request.max_time is None and self._cluster.lengths.chance_to_last(*request.size, 0.0, STEPS[-1]) > most
        ):
            return False
        return self._take(
            request, fit(request, self._capacities, self._plans, self._at, lambda plan: self._chance(request, plan))
        )

    def _chance(self, request: SlotRequest, plan: Plan) -> float:
        """Return the probability that a request, if started now, still runs when the reservation of `plan` is due."""
        if plan.risk <= 0:
            return 1.0
        lengths, begun_at = self._cluster.lengths, self._begun_at.get(request.size, ())

        def lasts(seconds: float) -> float:
            if request.max_time is not None:
                return 0.0 if request.max_time <= seconds else 1.0
            longer = sum(since + seconds < self._at for since in begun_at)
            return lengths.chance_to_last(*request.size, 0.0, seconds, longer)

        return late(self._due(plan), lasts)

    def _due(self, plan: Plan) -> Due:
        """Return the times at which a plan's reservation may start, each with its probability.

        The first call for a plan also lowers `plan.risk` by the risk of the gangs that use its reserved slots already.
        Later calls return the cached result.
        """
        known = self._dues.get(plan.request.key)
        if known is None:
            runs = [*self._runs, *(start.run(self._at) for start in self.starts)]
            held = [(slots, run) for run in runs if (slots := plan.held_by(run))]
            lengths = self._cluster.lengths
            known = self._dues[plan.request.key] = due(plan.missing, held, plan.since, lengths, self._at)
            plan.risk -= risk_of((run for _, run in held), plan.since, lengths, self._at, known)
        return known

    def _take(self, request: SlotRequest, found: Fit | None) -> bool:
        if found is None:
            return False
        self._capacities[found.kind].take(found.allocation)
        self._served.add(request.key)
        self._ledger.give(request)
        placement = self._placed(found.allocation)
        self.starts.append(Start(request, placement, found.passed, self._reserved.pop(request.key, None)))
        return True

    def _placed(self, allocation: SlotsByNode) -> Placement:
        shares = []
        for name, count in allocation:
            node, begun = self._cluster.nodes[name], self._taken[name]
            self._taken[name] += count
            slots = tuple(self._cluster.free[name][begun : begun + count])
            shares.append(Share(node=name, kind=node.kind, address=node.address, slots=slots))
        return tuple(shares)

    def _keep(self, request: SlotRequest, firm: bool, at_risk: bool) -> None:
        """Make a reservation for a request that does not fit now, or renew the one that it has.

        Gangs on its reserved slots are preempted if the request cannot start otherwise. A `firm` reservation lets
        others use its slots only if they end in time. Without `at_risk`, no gang is started on its slots merely because
        it will probably end in time.
        """
        before = self._reserved.get(request.key)
        risk = self._cluster.rules.risk if at_risk and request.priority < FIRST else 0.0
        made = self._take_back(request, borrowed=False, sticky=before, firm=firm, risk=risk)
        if made is not None:
            self._headed = True
            since, by = (self._at, request.priority) if before is None else (before.since, before.priority)
            self._reserved[request.key] = Reservation(request.key, made.kind, made.node, since, by)

    def _take_back(
        self,
        request: SlotRequest,
        borrowed: bool,
        sticky: Reservation | None = None,
        firm: bool = False,
        risk: float = 0.0,
    ) -> Plan | None:
        """Plan a reservation for a request that does not fit now, and preempt gangs whose slots it needs.

        Return the plan; None if the request could not start even on an empty pool. With `borrowed`, gangs that hold
        borrowed slots may be preempted, otherwise gangs that run on reserved slots. If it suffices to shrink elastic
        gangs, no gang loses all of its slots. `sticky` is the request's earlier reservation, whose node is kept if
        possible. A `firm` plan lets others use its slots only if they end in time. `risk` is the probability of a delay
        that is accepted.
        """
        if not self._feasible(request):
            return None
        rules, runs = self._cluster.rules, self._runs
        theirs = {run.key: run.slots for run in runs if (run.key in self._borrowed if borrowed else run.passed)}
        taken = {run.key: run.surplus for run in self._elastic if run.surplus} | theirs
        leaving = self._leaving()
        candidates = preemptible_now((run for run in runs if run.key in taken), rules, self._at)
        candidates = [run for run in candidates if run.key not in self._across.preempts]
        extra = surpluses(candidates)
        everything = [each for each in extra if each.run.key not in theirs]
        everything += [whole(run) for run in candidates if run.key in theirs]
        chosen = (extra and self._victims(request, extra, leaving)) or self._victims(request, everything, leaving)
        why = "within a guarantee" if borrowed else "next in the queue"
        self._across.preempts |= {each.run.key: _preempt(each, f"{request.key} is {why}", self._at) for each in chosen}
        coming = self._coming(taken)
        made = plan(
            request,
            self._capacities,
            self._nodes,
            coming,
            self._plans,
            self._at,
            sticky,
            firm=firm or borrowed,
            soon=rules.soon,
            risk=risk,
        )
        if made is not None:
            self._served.add(request.key)
            self._plans.append(made)
            if made.firm:
                self._ledger.commit(request)
        return made

    def _leaving(self) -> list[Source]:
        """Return the slots that gangs of the pool give up, by an earlier decision to preempt them or by this one."""
        leaving = [Source(run, run.freed) for run in self._runs if run.leaving is not None]
        preempts = (each for each in self._across.preempts.values() if each.run.pool == self._pool)
        return [*leaving, *(Source(each.run, each.freed) for each in preempts)]

    def _victims(self, request: SlotRequest, candidates: list[Source], leaving: list[Source]) -> list[Source]:
        return victims(request, self._capacities, self._nodes, candidates, leaving, self._plans)

    def _feasible(self, request: SlotRequest) -> bool:
        return feasible(self._nodes, request.slots, request.excluded, request.one_node)

    # Computed once, on first use

    @cached_property
    def _runs(self) -> list[Allocation]:
        return [run for run in self._cluster.runs.values() if run.pool == self._pool]

    @cached_property
    def _site(self) -> Site | None:
        """Return the pool as its external scheduler (site), such as Slurm, sees it with the gangs that start now.

        Call it when all starts are decided. None if Daylight itself chooses the nodes, or if the site's load is not
        known.
        """
        load = self._cluster.site_loads.get(self._pool)
        return None if load is None or load.problem else site_of(self._cluster, self._pool, load, self.starts)

    def _held(self, run: Allocation) -> Allocation:
        """Return a gang with the slots that it really holds, if an external scheduler has chosen its nodes."""
        return run if self._site is None else at_site(run, self._site)

    @cached_property
    def _elastic(self) -> list[Allocation]:
        return [run for run in self._runs if run.elastic is not None]

    @cached_property
    def _begun_at(self) -> dict[tuple[str, int], list[float]]:
        """Return the start times of the pool's running gangs, by (owner, number of slots)."""
        found: dict[tuple[str, int], list[float]] = {}
        for run in self._runs:
            found.setdefault((run.owner, run.slots), []).append(run.since)
        return found

    @cached_property
    def _borrowed(self) -> set[RequestKey]:
        return borrowed_slots(self._cluster)

    def _coming(self, taken_back: dict[RequestKey, int]) -> tuple[SlotRelease, ...]:
        """Return when gangs will release slots, as far as that is known, in order of time.

        `taken_back` has the numbers of slots to be reclaimed from gangs. These slots, and the slots of gangs that the
        current decision preempts, are assumed to be released as soon as the rules allow.
        """
        asked = taken_back | {key: each.freed for key, each in self._across.preempts.items()}
        runs = [*self._runs, *(start.run(self._at) for start in self.starts)]
        return releases(runs, self._cluster.rules, self._at, lambda run: asked.get(run.key, 0))


def _capacities(cluster: ClusterState, nodes: list[Node]) -> dict[str, Capacity]:
    kinds: dict[str, list[tuple[str, int]]] = {}
    for node in nodes:
        kinds.setdefault(node.kind, []).append((node.name, len(cluster.free[node.name])))
    future = frozenset(node.name for node in nodes if node.future)
    return {kind: Capacity(free, future) for kind, free in kinds.items()}
