"""Random histories of a cluster, each decision of which is looked at: nothing is given twice, nobody starves.

    python -m tests.torture.schedules [--histories 10000] [--seed 0]

A history has one or two pools, users and groups with quotas, gangs of all sizes, priorities, faults, lost nodes,
preemption. It ends when every job has.
"""

from __future__ import annotations

import argparse
import copy
import random
from collections import Counter
from dataclasses import replace

from kernel_backend.model.cluster.quotas import Quota, SlotHours
from kernel_backend.model.resources import Node
from kernel_backend.scheduler.backfill import fit
from kernel_backend.scheduler.decide import decide
from kernel_backend.scheduler.decisions import Decisions
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


def check(picture: ClusterState, decisions: Decisions) -> None:
    """What holds for every decision, whatever the picture."""
    _nothing_is_given_twice(picture, decisions)
    _no_limit_is_exceeded(picture, decisions)
    _who_goes_may_be_asked_to(picture, decisions)
    _nothing_is_idle_that_could_be_had(picture, decisions)
    _guarantees_are_met_or_on_their_way(picture, decisions)
    _limits_are_kept_for_who_can_use_them(picture, decisions)
    _who_hears_that_it_starts_does(picture, decisions)


def _nothing_is_given_twice(picture: ClusterState, decisions: Decisions) -> None:
    taken: Counter[tuple[str, int]] = Counter()
    for start in decisions.starts:
        ask, nodes = start.ask, [picture.nodes[share.node] for share in start.placement]
        assert ask.key in picture.queue.asks
        assert all(node.healthy and not node.drained and node.pool == ask.pool for node in nodes)
        assert len({node.kind for node in nodes}) == 1
        assert not ask.excluded & {node.name for node in nodes}
        assert len(nodes) == 1 or not ask.one_node
        assert len(nodes) == len({node.name for node in nodes})
        for share in start.placement:
            assert set(share.slots) <= set(picture.free[share.node])
            taken.update((share.node, slot) for slot in share.slots)
        assert sum(len(share.slots) for share in start.placement) == ask.slots
    assert all(count == 1 for count in taken.values())
    assert len({start.ask.key for start in decisions.starts}) == len(decisions.starts)


def _no_limit_is_exceeded(picture: ClusterState, decisions: Decisions) -> None:
    for accounts, whose in ((picture.users, "owner"), (picture.groups, "group")):
        given: Counter[str] = Counter()
        for start in decisions.starts:
            given[getattr(start.ask, whose)] += start.ask.slots
        for name, slots in given.items():
            limit = accounts.quota(name).limit
            assert limit is None or accounts.use(name, picture.at).held + slots <= limit


def _who_goes_may_be_asked_to(picture: ClusterState, decisions: Decisions) -> None:
    for preempt in decisions.preempts:
        run = picture.runs[preempt.run.key]
        assert run.leaving is None
        assert run.committed is not None
        assert run.committed + picture.rules.min_run <= picture.at
    assert not {start.ask.key for start in decisions.starts} & {each.run.key for each in decisions.preempts}


def _rooms(picture: ClusterState, decisions: Decisions, pool: str) -> dict[str, Capacity]:
    """What is free in a pool when the starts have been carried out."""
    given: Counter[str] = Counter()
    for start in decisions.starts:
        given.update({share.node: len(share.slots) for share in start.placement})
    kinds: dict[str, list[tuple[str, int]]] = {}
    for node in picture.usable(pool):
        kinds.setdefault(node.kind, []).append((node.name, len(picture.free[node.name]) - given[node.name]))
    return {kind: Capacity(free) for kind, free in kinds.items()}


def _waiting(picture: ClusterState, decisions: Decisions, limits_kept: bool = False) -> list[SlotRequest]:
    """Those that have a turn, were not started, and could be within what their limits leave beside what is kept."""
    started, ledger = {start.ask.key for start in decisions.starts}, Ledger(picture)
    for start in decisions.starts:
        ledger.give(start.ask)
    asks = [ask for ask in picture.queue if ask.key not in started and picture.queue.stands(ask)]
    for ask in [picture.queue.asks[each.key] for each in decisions.reservations]:
        if limits_kept or not ledger.guaranteed(ask):
            ledger.promise(ask)
    return [ask for ask in asks if not ledger.stopped_by(ask) and not impossible(picture, ask)]


def _nothing_is_idle_that_could_be_had(picture: ClusterState, decisions: Decisions) -> None:
    """Nobody waits for slots that are free, unless they are kept for somebody."""
    waiting = _waiting(picture, decisions, limits_kept=True)
    ledger = Ledger(picture)
    for pool in {ask.pool for ask in waiting}:
        rooms = _rooms(picture, decisions, pool)
        idle = [ask for ask in waiting if ask.pool == pool and fit(ask, rooms, (), picture.at)]
        kept = [each for each in decisions.reservations if picture.queue.asks[each.key].pool == pool]
        guaranteed = [ask for ask in waiting if ledger.guaranteed(ask)]  # in any pool: its limit is kept for it, too
        starving = [ask for ask in reserved_for(picture, pool) if ask not in waiting]
        assert not idle or kept or guaranteed or starving, f"{idle} could run"


def _guarantees_are_met_or_on_their_way(picture: ClusterState, decisions: Decisions) -> None:
    """Who asks within a guarantee does not wait while those who could be asked to go would make room."""
    ledger = Ledger(picture)
    for start in decisions.starts:
        ledger.give(start.ask)
    wide = [ask for ask in _waiting(picture, decisions) if not ask.one_node and not ask.excluded]
    guaranteed = [ask for ask in wide if ledger.guaranteed(ask)]
    borrowed, going = borrowed_slots(picture), {each.run.key for each in decisions.preempts}
    for ask in guaranteed:
        others = sum(other.slots for other in guaranteed if other is not ask and other.pool == ask.pool)
        for kind, room in _rooms(picture, decisions, ask.pool).items():
            runs = [run for run in picture.runs.values() if run.pool == ask.pool and run.kind == kind]
            coming = sum(run.slots for run in runs if run.leaving is not None or run.key in going)
            could = sum(run.slots for run in runs if run.key in borrowed - going and _ripe(run, picture))
            assert room.total + coming >= ask.slots or room.total + coming + could - others < ask.slots, ask


def _limits_are_kept_for_who_can_use_them(picture: ClusterState, decisions: Decisions) -> None:
    """Whoever fits beside all that is held waits only for somebody whom it would delay."""
    ledger = Ledger(picture)
    for start in decisions.starts:
        ledger.give(start.ask)
    started = {start.ask.key for start in decisions.starts}
    asks = [ask for ask in picture.queue if ask.key not in started and picture.queue.stands(ask)]
    free = {pool: _rooms(picture, decisions, pool) for pool in picture.pools}
    idle = [ask for ask in asks if not ledger.stopped_by(ask) and fit(ask, free[ask.pool], (), picture.at)]
    for ask in idle:
        rivals = [
            other for other in asks if other.key != ask.key and _may_stand_in_the_way(picture, ledger, other, ask)
        ]
        assert rivals, f"{ask} waits for nobody"


def _may_stand_in_the_way(picture: ClusterState, ledger: Ledger, other: SlotRequest, ask: SlotRequest) -> bool:
    """Whether `other` can be placed now, and what it waits for is what `ask` would take from it."""
    if not feasible(picture.usable(other.pool), other.slots, other.excluded, other.one_node):
        return False
    if ledger.spent("user", other.owner) or ledger.spent("group", other.group):
        return False
    stopped = ledger.stopped_by(other)
    if stopped is None:
        return other.pool == ask.pool or other.owner == ask.owner or other.group == ask.group
    return other.owner == ask.owner or (stopped == "group" and other.group == ask.group)


def _who_hears_that_it_starts_does(picture: ClusterState, decisions: Decisions) -> None:
    """Nobody reads of a start that does not come: where nothing changes any more, nobody is said to start."""
    if decisions.starts or decisions.reservations != picture.reservations:
        return
    waiting = [ask for ask in picture.queue if picture.queue.stands(ask)]
    for ask in waiting[:: max(1, len(waiting) // 3)]:
        wait = explain(picture, ask)
        assert not wait.reason.endswith("starting"), f"{ask}: {wait.reason}"


def shuffled(picture: ClusterState, draw: random.Random) -> ClusterState:
    """The same cluster, told of in another order."""
    other = copy.copy(picture)
    for name in ("nodes", "free", "runs"):
        entries = list(getattr(picture, name).items())
        draw.shuffle(entries)
        setattr(other, name, dict(entries))
    other.queue = copy.copy(picture.queue)
    other.queue.lines = {pool: dict(draw.sample([*of.items()], len(of))) for pool, of in picture.queue.lines.items()}
    return other


def _ripe(run: Allocation, picture: ClusterState) -> bool:
    ripe = run.committed is not None and run.committed + picture.rules.min_run <= picture.at
    return ripe and run.leaving is None


def play(seed: int) -> SimulationResult:
    """One history; raises AssertionError where anything is not as it should be."""
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

    order = random.Random(seed)
    rules = replace(RULES, starving=order.choice((300.0, 3600.0)))

    def watch(picture: ClusterState, decisions: Decisions) -> None:
        state = _state(picture)
        assert decide(picture) == decisions, "the same picture gives the same decision"
        assert _state(picture) == state, "deciding changes nothing"
        assert decide(shuffled(picture, order)) == decisions, "a decision depends on the order in which things are told"
        check(picture, decisions)

    played = simulate(
        jobs,
        nodes,
        users=users,
        groups=groups,
        rules=rules,
        faults=lambda job, nth: crashes.get((job, nth)),
        outages=outages,
        checkpoint_every=draw.choice((10.0, 60.0)),
        stall=draw.uniform(0.0, RULES.grace),
        watch=watch,
    )
    possible = [job for job in jobs if not impossible(_picture(nodes, users, groups), job.ask(0.0))]
    never = [job for job in possible if job.number not in played.ends]
    spent = any(quota.slot_hours for quota in (*users.values(), *groups.values()))
    assert not never or spent, f"never done: {never}"
    return played


def _picture(nodes: list[Node], users: dict[str, Quota], groups: dict[str, Quota]) -> ClusterState:
    return ClusterState(nodes, users=users, groups=groups)


def _state(picture: ClusterState) -> tuple[object, ...]:
    free = tuple((name, tuple(slots)) for name, slots in picture.free.items())
    return free, tuple(picture.runs), tuple(picture.queue.asks), picture.reservations


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
    return Workload(
        number,
        draw.choice((round(draw.uniform(0, 2000), 1), 60.0 * draw.randint(0, 33))),
        duration,
        draw.choice((1, 1, 2, 3, 4, 8, 12)),
        draw.choice(owners),
        draw.choice(groups),
        priority=draw.choice((0, 0, 0, 2, 5)),
        one_node=draw.random() < 0.2,
        max_time=duration * draw.choice((1.0, 1.5, 2.0)) if draw.random() < 0.5 else None,
        preemptible=draw.random() < 0.5,
        pool=draw.choice(pools),
    )


def main() -> None:
    """Play histories until all are done or one is not as it should be; says which."""
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
        starts += len(played.spells)
        preempted += played.preempted
    print(f"{given.histories} histories, {starts} starts, {preempted} preemptions: as they should be")


if __name__ == "__main__":
    main()
