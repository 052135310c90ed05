"""Choose which of the allocations (jobs or pods) that searches keep between trials must be given back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kernel_backend.model.cluster.allocations import HeldAllocation
from kernel_backend.scheduler.quotas import Ledger
from kernel_backend.scheduler.requests import Allocation
from kernel_backend.scheduler.state import ClusterState

IDLE_S = 2.0  # time for a search to start its next trial in an idle allocation while others wait
RIVAL_S = 60.0  # time a gang of a user with less usage waits in the site's queue before searches give slots back


class SearchOwner(NamedTuple):
    """Owner and group of a search that keeps allocations."""

    owner: str
    group: str


def given_back(
    cluster: ClusterState, pool: str, held: Sequence[HeldAllocation], active: Mapping[int, SearchOwner]
) -> dict[str, str]:
    """Return the kept allocations of a pool that searches must give back: the reason, by the allocation's id.

    `held` has the allocations that searches keep. `active` has the searches that train in the pool, and are neither
    paused nor ended. An allocation in which a gang runs is given back when the gang ends.
    """
    found: dict[str, str] = {}
    for each in held:
        if not each.closing and (why := _unwanted(cluster, pool, each, active)):
            found[each.id] = why
    return found | _make_room(cluster, pool, [each for each in held if each.id not in found], active)


def _unwanted(cluster: ClusterState, pool: str, each: HeldAllocation, active: Collection[int]) -> str:
    """Return why an allocation must be given back; "" if it may be kept.

    It must be given back if its search is not active. It must also be given back if it has been idle for a while and
    either no trial of its search waits for it, or another experiment waits for slots of the pool.
    """
    if each.experiment not in active and (each.running or not each.gang):  # a waiting gang is withdrawn first
        return f"search #{each.experiment} does not go on"
    if each.idle_since is None or cluster.at - each.idle_since < IDLE_S:
        return ""
    if not each.running:
        return f"no trial of #{each.experiment} waits for it"
    return f"others wait in pool {pool}" if _others_wait(cluster, pool, each.experiment) else ""


def _others_wait(cluster: ClusterState, pool: str, experiment: int) -> bool:
    """Return whether an experiment other than `experiment` waits for slots of a pool.

    It may wait in Daylight's queue, or in the pool's external queue, such as Slurm's.
    """
    requests = (request for line in cluster.queue.lines.get(pool, {}).values() for request in line.requests)
    return any(each.experiment != experiment for each in requests) or any(
        run.waiting and run.key.is_gang and run.pool == pool and run.key.experiment != experiment
        for run in cluster.runs.values()
    )


def _make_room(
    cluster: ClusterState, pool: str, held: Sequence[HeldAllocation], active: Mapping[int, SearchOwner]
) -> dict[str, str]:
    """Return kept allocations to give back, so that gangs in the pool's external queue can start: the reason, by id.

    Only users with more usage than the waiting gang's user give allocations back, and no more than the gangs need.
    Slots of allocations that are already being given back count as available to these gangs.
    """
    rivals = [run for run in cluster.runs.values() if run.waiting and run.key.is_gang and run.pool == pool]
    rivals = [run for run in rivals if cluster.at - run.since >= RIVAL_S]
    if not rivals:
        return {}
    ledger, found = Ledger(cluster), dict[str, str]()
    coming = sum(each.slots for each in held if each.closing and each.running)
    for rival in sorted(rivals, key=lambda run: run.since):
        coming -= rival.slots
        for each in _behind(ledger, rival, held, active):
            if coming >= 0:
                break
            if each.id not in found:
                found[each.id] = f"a gang of {rival.owner or 'another user'} is ahead in the queue"
                coming += each.slots
    return found


def _behind(
    ledger: Ledger, rival: Allocation, held: Iterable[HeldAllocation], active: Mapping[int, SearchOwner]
) -> list[HeldAllocation]:
    """Return the kept allocations of users with more usage, relative to their weight, than the owner of `rival`.

    `rival` is a gang that waits. Allocations in which no gang runs come first; those that wait for slots are left out.
    """

    def share(owner: str, group: str) -> float:
        return ledger.member_share(group, owner) if group == rival.group else ledger.group_share(group)

    found: list[tuple[bool, float, str, HeldAllocation]] = []
    for each in held:
        whose = active.get(each.experiment)
        if whose is None or each.closing or not each.running or whose.owner == rival.owner:
            continue
        mine = ledger.member_share(rival.group, rival.owner)
        theirs = share(*whose)
        if whose.group != rival.group:
            mine = ledger.group_share(rival.group)
        if mine < theirs:
            found.append((bool(each.gang), -theirs, each.id, each))
    return [each for *_, each in sorted(found, key=lambda one: one[:3])]
