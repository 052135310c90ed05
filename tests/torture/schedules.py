"""Random histories of a cluster, each decision of which is looked at: nothing is given twice, nobody starves.

    python -m tests.torture.schedules [--histories 10000] [--seed 0]

A history has one or two pools, users and groups with quotas, gangs of all sizes, some of them elastic, some for either
pool, priorities, faults, lost nodes, preemption. It ends when every job has. Each state of it is decided once more as
if others used the pools, too, with free slots, requests of theirs and gangs in the site's queue drawn at random.
"""

from __future__ import annotations

import argparse
import copy
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from kernel_backend.model.cluster.quotas import Quota, SlotHours
from kernel_backend.model.cluster.site_load import OtherRequest, SiteLoad
from kernel_backend.model.resources import Node
from kernel_backend.scheduler.backfill import fit
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.decisions import Decisions, Start
from kernel_backend.scheduler.explain.explain import explain
from kernel_backend.scheduler.explain.feasibility import impossible
from kernel_backend.scheduler.order import reserved_for
from kernel_backend.scheduler.placement import Capacity, feasible
from kernel_backend.scheduler.quotas import Ledger, borrowed_slots
from kernel_backend.scheduler.requests import Allocation, SlotRequest
from kernel_backend.scheduler.rules import Rules
from kernel_backend.scheduler.simulation.simulate import Outage, SimulationResult, simulate
from kernel_backend.scheduler.simulation.workloads import Workload
from kernel_backend.scheduler.state import ClusterState

RULES = Rules(half_life=3600.0, advance=300.0, min_run=20.0, grace=20.0, soon=30.0, patience=300.0, starving=3600.0)


def check(cluster: ClusterState, decisions: Decisions) -> None:
    """Assert the properties of every decision, for any state of the cluster."""
    _nothing_is_given_twice(cluster, decisions)
    _no_limit_is_exceeded(cluster, decisions)
    _who_goes_may_be_asked_to(cluster, decisions)
    _nothing_is_idle_that_could_be_had(cluster, decisions)
    _elastic_gangs_get_only_what_nobody_waits_for(cluster, decisions)
    _guarantees_are_met_or_on_their_way(cluster, decisions)
    _limits_are_kept_for_who_can_use_them(cluster, decisions)
    _who_hears_that_it_starts_does(cluster, decisions)


def _nothing_is_given_twice(cluster: ClusterState, decisions: Decisions) -> None:
    taken: Counter[tuple[str, int]] = Counter()
    for start in decisions.starts:
        request, nodes = start.request, [cluster.nodes[share.node] for share in start.placement]
        assert request.key in cluster.queue.requests
        assert all(node.healthy and not node.drained and node.pool == request.pool for node in nodes)
        assert len({node.kind for node in nodes}) == 1
        assert not request.excluded & {node.name for node in nodes}
        assert len(nodes) == 1 or not request.one_node
        assert len(nodes) == len({node.name for node in nodes})
        for share in start.placement:
            assert set(share.slots) <= set(cluster.free[share.node])
            taken.update((share.node, slot) for slot in share.slots)
        assert _size(start) in (request.slots, *request.larger)
    assert all(count == 1 for count in taken.values())
    assert len({start.request.key for start in decisions.starts}) == len(decisions.starts)


def _no_limit_is_exceeded(cluster: ClusterState, decisions: Decisions) -> None:
    for accounts, whose in ((cluster.users, "owner"), (cluster.groups, "group")):
        given: Counter[str] = Counter()
        for start in decisions.starts:
            given[getattr(start.request, whose)] += _size(start)
        for name, slots in given.items():
            limit = accounts.quota(name).limit
            assert limit is None or accounts.use(name, cluster.at).held + slots <= limit


def _who_goes_may_be_asked_to(cluster: ClusterState, decisions: Decisions) -> None:
    for preempt in decisions.preempts:
        run = cluster.runs[preempt.run.key]
        assert run.leaving is None
        if run.waiting:  # it has nothing to lose in its site's queue
            assert preempt.change == "shrink"
            continue
        assert run.committed is not None
        assert run.committed + cluster.rules.min_run <= cluster.at
    assert not {start.request.key for start in decisions.starts} & {each.run.key for each in decisions.preempts}


def _size(start: Start) -> int:
    return sum(len(share.slots) for share in start.placement)


def _after(cluster: ClusterState, decisions: Decisions) -> Ledger:
    """Return what accounts hold after all starts are carried out."""
    ledger = Ledger(cluster)
    for start in decisions.starts:
        ledger.give(start.request)
        ledger.commit(start.request, more=_size(start) - start.request.slots)
    return ledger


def _elastic_gangs_get_only_what_nobody_waits_for(cluster: ClusterState, decisions: Decisions) -> None:
    larger = [start.request for start in decisions.starts if _size(start) > start.request.slots]
    growing = [each.run for each in decisions.preempts if each.change == "grow"]
    pools = {request.pool for request in larger} | {run.pool for run in growing}
    ledger = _after(cluster, decisions)
    for pool in cluster.pools:
        for request in reserved_for(cluster, pool):
            if ledger.stopped_by(request):  # what is left of its limit is kept for it, so that others wait for that
                ledger.hold_back(request)
    waiting = [request for request in _waiting(cluster, decisions) if request.pool in pools]
    assert not [each for each in waiting if _could_be_placed(cluster, each) and not ledger.stopped_by(each)]
    assert not pools & {cluster.queue.requests[key].pool for key in cluster.queue.ineligible}
    assert len(growing) == len({run.pool for run in growing}), "one at a time"
    for preempt in decisions.preempts:
        assert (preempt.kept is not None) == (preempt.change != "exit")
        assert preempt.change == "exit" or preempt.run.elastic is not None
        assert preempt.change != "shrink" or preempt.run.surplus


def _could_be_placed(cluster: ClusterState, request: SlotRequest) -> bool:
    return feasible(cluster.usable(request.pool), request.slots, request.excluded, request.one_node)


def _capacities(cluster: ClusterState, decisions: Decisions, pool: str) -> dict[str, Capacity]:
    """Return the free capacity of a pool after all starts are carried out, by kind of node."""
    given: Counter[str] = Counter()
    for start in decisions.starts:
        given.update({share.node: len(share.slots) for share in start.placement})
    kinds: dict[str, list[tuple[str, int]]] = {}
    for node in cluster.usable(pool):
        kinds.setdefault(node.kind, []).append((node.name, len(cluster.free[node.name]) - given[node.name]))
    return {kind: Capacity(free) for kind, free in kinds.items()}


def _waiting(cluster: ClusterState, decisions: Decisions, limits_kept: bool = False) -> list[SlotRequest]:
    """Return the requests that are eligible, were not started, and fit within limits beside reserved slots."""
    started, ledger = {start.request.key for start in decisions.starts}, _after(cluster, decisions)
    requests = [request for request in cluster.queue if request.key not in started and cluster.queue.stands(request)]
    for request in [cluster.queue.requests[each.key] for each in decisions.reservations]:
        if limits_kept or not ledger.guaranteed(request):
            ledger.commit(request)
    return [request for request in requests if not ledger.stopped_by(request) and not impossible(cluster, request)]


def _nothing_is_idle_that_could_be_had(cluster: ClusterState, decisions: Decisions) -> None:
    """Assert that no request waits for slots that are free, unless they are reserved for others."""
    waiting = _waiting(cluster, decisions, limits_kept=True)
    ledger = Ledger(cluster)
    for pool in {each.pool for request in waiting for each in request.in_each_pool}:
        capacities = _capacities(cluster, decisions, pool)
        idle = [each for each in _in(pool, waiting) if fit(each, capacities, (), cluster.at)]
        kept = _in(pool, [cluster.queue.requests[each.key] for each in decisions.reservations])
        guaranteed = [
            request for request in waiting if ledger.guaranteed(request)
        ]  # in any pool: its limit is kept for it, too
        theirs = {request.key for request in waiting}
        starving = [request for request in reserved_for(cluster, pool) if request.key not in theirs]
        assert not idle or kept or guaranteed or starving, f"{idle} could run"


def _in(pool: str, requests: Iterable[SlotRequest]) -> list[SlotRequest]:
    """Return the requests that wait in a pool, as they wait there."""
    return [here for request in requests if (here := request.within(pool)) is not None]


def _at_home(cluster: ClusterState, request: SlotRequest) -> SlotRequest:
    """Return a request in the pool where gangs are preempted for it: the first of its own that can ever hold it."""
    theirs = request.in_each_pool
    return next(
        (each for each in theirs if feasible(cluster.usable(each.pool), each.slots, each.excluded, each.one_node)),
        request,
    )


def _guarantees_are_met_or_on_their_way(cluster: ClusterState, decisions: Decisions) -> None:
    """Assert that no request within a guarantee waits while preemptible runs hold the slots that it needs."""
    ledger = _after(cluster, decisions)
    wide = [request for request in _waiting(cluster, decisions) if not request.one_node and not request.excluded]
    guaranteed = [_at_home(cluster, request) for request in wide if ledger.guaranteed(request)]
    borrowed, going = borrowed_slots(cluster), {each.run.key: each.freed for each in decisions.preempts}
    for request in guaranteed:
        others = sum(other.slots for other in guaranteed if other is not request and other.pool == request.pool)
        for kind, room in _capacities(cluster, decisions, request.pool).items():
            runs = [run for run in cluster.runs.values() if run.pool == request.pool and run.kind == kind]
            coming = sum(run.freed for run in runs if run.leaving is not None)
            coming += sum(going.get(run.key, 0) for run in runs)
            ripe = [run for run in runs if run.key not in going and _ripe(run, cluster)]
            could = sum(run.slots if run.key in borrowed else run.surplus for run in ripe)
            assert room.total + coming >= request.slots or room.total + coming + could - others < request.slots, request


def _limits_are_kept_for_who_can_use_them(cluster: ClusterState, decisions: Decisions) -> None:
    """Assert that a request which fits beside all held slots waits only for a request that it would delay."""
    ledger = _after(cluster, decisions)
    started = {start.request.key for start in decisions.starts}
    requests = [request for request in cluster.queue if request.key not in started and cluster.queue.stands(request)]
    free = {pool: _capacities(cluster, decisions, pool) for pool in cluster.pools}
    requests = [each for request in requests for each in request.in_each_pool]
    idle = [
        request
        for request in requests
        if not ledger.stopped_by(request) and fit(request, free[request.pool], (), cluster.at)
    ]
    for request in idle:
        rivals = [
            other
            for other in requests
            if other.key != request.key and _may_stand_in_the_way(cluster, ledger, other, request)
        ]
        assert rivals, f"{request} waits for nobody"


def _may_stand_in_the_way(cluster: ClusterState, ledger: Ledger, other: SlotRequest, request: SlotRequest) -> bool:
    """Return True where `other` can be placed now and waits for slots that `request` would take from it."""
    if not feasible(cluster.usable(other.pool), other.slots, other.excluded, other.one_node):
        return False
    if ledger.spent("user", other.owner) or ledger.spent("group", other.group):
        return False
    stopped = ledger.stopped_by(other)
    if stopped is None:
        return other.pool == request.pool or other.owner == request.owner or other.group == request.group
    return other.owner == request.owner or (stopped == "group" and other.group == request.group)


def _who_hears_that_it_starts_does(cluster: ClusterState, decisions: Decisions) -> None:
    """Assert that a request whose explanation announces a start does start, if nothing else changes."""
    if decisions.starts or decisions.reservations != cluster.reservations:
        return
    waiting = [request for request in cluster.queue if cluster.queue.stands(request)]
    for request in waiting[:: max(1, len(waiting) // 3)]:
        wait = explain(cluster, request)
        assert "starting" not in wait.reason, f"{request}: {wait.reason}"


def at_a_site(cluster: ClusterState, draw: random.Random) -> ClusterState:
    """The same cluster, as if its nodes were also used by others, who wait for some."""
    other = copy.copy(cluster)
    other.runs = {
        key: replace(run, actual=run.placement, waiting=run.committed is None and draw.random() < 0.2)
        for key, run in cluster.runs.items()
    }
    other.site_loads = {}
    for pool in sorted(cluster.pools):
        free = {node.name: draw.randint(0, len(cluster.free[node.name])) for node in cluster.usable(pool)}
        waiting = tuple(
            OtherRequest(name=f"job {nth}", slots=draw.choice((1, 2, 4, 8)), one_node=draw.random() < 0.5)
            for nth in range(draw.choice((0, 0, 1, 1, 3)))
        )
        other.site_loads |= {pool: SiteLoad(at=cluster.at + 1, free=free, waiting=waiting)}
    return other


def check_site(cluster: ClusterState, decisions: Decisions) -> None:
    """Assert that elastic gangs take nothing that others wait for, and give it back if that is enough for them."""
    _nothing_is_given_twice(cluster, decisions)
    _no_limit_is_exceeded(cluster, decisions)
    _who_goes_may_be_asked_to(cluster, decisions)
    _elastic_gangs_get_only_what_nobody_waits_for(cluster, decisions)
    for pool, load in cluster.site_loads.items():
        free, nodes = sum(load.free.values()), cluster.usable(pool)
        others = [each for each in load.waiting if feasible(nodes, each.slots, (), each.one_node)]
        runs = [run for run in cluster.runs.values() if run.pool == pool]
        queued = [run.slots - run.surplus for run in runs if run.waiting and run.leaving is None]
        starts = [start for start in decisions.starts if start.request.pool == pool]
        larger = [_size(start) for start in starts if _size(start) > start.request.slots]
        preempts = [each for each in decisions.preempts if each.run.pool == pool]
        wanted = sum(each.slots for each in others) + sum(queued)
        growing = any(each.change == "grow" for each in preempts)
        assert not (larger or growing) or wanted + sum(larger) + growing <= free, "others wait for these slots"
        if len(others) == 1 and not (others[0].one_node or queued or starts or decisions.reservations):
            ready = free + sum(run.freed for run in runs if run.leaving is not None) + sum(e.freed for e in preempts)
            going = {each.run.key for each in preempts}
            could = sum(run.surplus for run in runs if run.key not in going and _ripe(run, cluster))
            assert ready >= others[0].slots or ready + could < others[0].slots, "others wait for what could be given"


def shuffled(cluster: ClusterState, draw: random.Random) -> ClusterState:
    """Return the same cluster, built in another order."""
    other = copy.copy(cluster)
    for name in ("nodes", "free", "runs"):
        entries = list(getattr(cluster, name).items())
        draw.shuffle(entries)
        setattr(other, name, dict(entries))
    other.queue = copy.copy(cluster.queue)
    other.queue.lines = {pool: dict(draw.sample([*of.items()], len(of))) for pool, of in cluster.queue.lines.items()}
    return other


def _ripe(run: Allocation, cluster: ClusterState) -> bool:
    ripe = run.committed is not None and run.committed + cluster.rules.min_run <= cluster.at
    return ripe and run.leaving is None


def play(seed: int) -> SimulationResult:
    """Simulate one history; raise AssertionError if a decision violates a property."""
    draw = random.Random(seed)
    pools = ["local", "a100"][: draw.randint(1, 2)]
    nodes = [
        Node(name=f"{pool}{at}", kind="cuda", address="", slots=draw.choice((2, 4, 8)), pool=pool)
        for pool in pools
        for at in range(draw.randint(1, 4))
    ]
    capacity = min(sum(node.slots for node in nodes if node.pool == pool) for pool in pools)
    groups = {name: _quota(draw, capacity // 4) for name in ("vision", "speech")[: draw.randint(0, 2)]}
    users = {name: _quota(draw, capacity // 8) for name in ("ada", "bob")[: draw.randint(0, 2)]}
    owners = ["ada", "bob", "cy", "di"][: draw.randint(1, 4)]
    jobs = [_job(draw, number, nodes, pools, owners, list(groups) or [""]) for number in range(1, draw.randint(2, 40))]
    crashes = {(job.number, nth): draw.uniform(0.0, 200.0) for job in jobs for nth in range(3) if draw.random() < 0.1}
    outages = [Outage(node.name, draw.uniform(0, 3000), draw.uniform(1, 600)) for node in nodes if draw.random() < 0.2]

    stall = draw.uniform(0.0, RULES.grace)
    growths: Counter[int] = Counter()
    order = random.Random(seed)
    rules = replace(RULES, starving=order.choice((300.0, 3600.0)))

    def watch(cluster: ClusterState, decisions: Decisions) -> None:
        state = _state(cluster)
        assert decide(cluster) == decisions, "the same picture gives the same decision"
        assert _state(cluster) == state, "deciding changes nothing"
        assert decide(shuffled(cluster, order)) == decisions, "a decision depends on the order in which things are told"
        check(cluster, decisions)
        site = at_a_site(cluster, order)
        shared = decide(site)
        assert decide(shuffled(site, order)) == shared, "a decision depends on the order in which things are told"
        check_site(site, shared)
        growths.update(each.run.key.experiment for each in decisions.preempts if each.change == "grow")

    played = simulate(
        jobs,
        nodes,
        users=users,
        groups=groups,
        rules=rules,
        faults=lambda job, nth: crashes.get((job, nth)),
        outages=outages,
        checkpoint_every=draw.choice((10.0, 60.0)),
        stall=stall,
        watch=watch,
    )
    possible = [job for job in jobs if not impossible(_picture(nodes, users, groups), job.request(0.0))]
    never = [job for job in possible if job.number not in played.ends]
    spent = any(quota.slot_hours for quota in (*users.values(), *groups.values()))
    assert not never or spent, f"never done: {never}"
    for number, count in growths.items():
        had = sum(each.ended - each.begun for each in played.intervals if each.job == number)
        assert count * stall <= rules.restarts * had, f"job {number} grows too often"
    return played


def _picture(nodes: list[Node], users: dict[str, Quota], groups: dict[str, Quota]) -> ClusterState:
    return ClusterState(nodes, users=users, groups=groups)


def _state(cluster: ClusterState) -> tuple[object, ...]:
    free = tuple((name, tuple(slots)) for name, slots in cluster.free.items())
    return free, tuple(cluster.runs), tuple(cluster.queue.requests), cluster.reservations


def _quota(draw: random.Random, most: int) -> Quota:
    guarantee = draw.randint(0, most)
    limit = draw.choice((None, guarantee + draw.randint(1, 8)))
    hours = SlotHours(hours=draw.uniform(0.5, 5), window=7200.0) if draw.random() < 0.1 else None
    most_slots = draw.choice((None, None, 8))
    return Quota(
        weight=draw.choice((1.0, 2.0, 0.5)),
        guarantee=guarantee,
        limit=limit,
        slot_hours=hours,
        max_slots_per_trial=most_slots,
        priority=draw.choice((0, 0, 3)),
    )


def _job(
    draw: random.Random, number: int, nodes: list[Node], pools: list[str], owners: list[str], groups: list[str]
) -> Workload:
    duration = draw.choice((5.0, 30.0, 120.0, 600.0))
    slots = draw.choice((1, 1, 2, 3, 4, 8, 12))
    least = draw.randint(1, slots) if draw.random() < 0.3 else slots
    several = len(pools) > 1 and draw.random() < 0.3
    theirs = draw.sample(pools, len(pools)) if several else [draw.choice(pools)]
    return Workload(
        number,
        draw.choice((round(draw.uniform(0, 2000), 1), 60.0 * draw.randint(0, 33))),
        duration,
        slots,
        draw.choice(owners),
        draw.choice(groups),
        priority=draw.choice((0, 0, 0, 2, 5)),
        one_node=draw.random() < 0.2,
        max_time=duration * draw.choice((1.0, 1.5, 2.0)) if draw.random() < 0.5 and least == slots else None,
        preemptible=draw.random() < 0.5,
        pool=theirs[0],
        pools=tuple(theirs) if several else (),
        least=None if least == slots else least,
    )


def main() -> None:
    """Simulate histories until all are done or one fails; print which."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    starts = preempted = 0
    for seed in range(given.seed, given.seed + given.histories):
        try:
            played = play(seed)
        except AssertionError as error:
            raise SystemExit(f"history {seed}: {error!r}") from error
        starts += len(played.intervals)
        preempted += played.preempted
    print(f"{given.histories} histories, {starts} starts, {preempted} preemptions: as they should be")


if __name__ == "__main__":
    main()
