"""Work out which slots elastic gangs may have in a pool that an external scheduler (the site), such as Slurm, manages.

In such a pool the site chooses the nodes of Daylight's gangs, and gives other nodes to jobs that Daylight does not
know. Elastic gangs therefore use only slots that the engine has seen to be free, less those of everybody who waits for
slots. They give slots back to any gang or other job that waits in the site's queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernel_backend.model.cluster.site_load import SiteLoad
from kernel_backend.model.resources import Node
from kernel_backend.scheduler.decisions import Start
from kernel_backend.scheduler.placement import Capacity, SlotsByNode, feasible
from kernel_backend.scheduler.preemption import Source, victims
from kernel_backend.scheduler.requests import Allocation, RequestKey, SlotRequest
from kernel_backend.scheduler.reservations import Plan
from kernel_backend.scheduler.state import ClusterState


@dataclass
class Site:
    """State of a pool as its external scheduler, such as Slurm, sees it, after gangs that start now have got slots."""

    nodes: list[Node]  # on which gangs may be placed, and which are there
    capacities: dict[str, Capacity]  # free slots by kind of device
    starts: dict[RequestKey, SlotsByNode] = field(default_factory=dict)  # where gangs that start now would be placed
    waiting: list[tuple[str, SlotRequest]] = field(default_factory=list)  # who waits in vain, the first in order first
    whole: Mapping[str, int] | None = None  # slots of each node, if every gang gets whole nodes


def site_of(cluster: ClusterState, pool: str, load: SiteLoad, starts: Sequence[Start]) -> Site:
    """Return the state of a pool that an external scheduler manages, including the gangs in `starts`, which start now.

    `load` is what the engine has last seen there. Gangs that it may not have seen yet are placed as well: those that
    wait in the external queue, and those that have got their slots since the load was read.
    """
    nodes = [node for node in cluster.usable(pool) if not node.future]
    kinds: dict[str, list[tuple[str, int]]] = {}
    for node in nodes:
        kinds.setdefault(node.kind, []).append((node.name, load.free.get(node.engine_name, 0)))
    site = Site(nodes, {kind: Capacity(free) for kind, free in kinds.items()})
    if load.whole_nodes:
        site.whole = {node.name: node.slots for node in nodes}
    runs = [run for run in cluster.runs.values() if run.pool == pool and run.key.is_gang and run.leaving is None]
    for run in sorted(runs, key=lambda run: (run.since, run.key)):
        if run.waiting or run.since >= load.at:
            whole, least = _asked(run, run.slots), _asked(run, run.slots - run.surplus)
            placed = _taken(site, whole) or _taken(site, least)
            if placed is None and run.waiting and run.key not in cluster.placed:
                site.waiting.append((str(run.key), least))
    for other in load.waiting:
        request = SlotRequest(0, 0, other.slots, 0.0, one_node=other.one_node)
        if _taken(site, request) is None and feasible(nodes, request.slots, (), request.one_node):
            site.waiting.append((other.name, request))
    for start in starts:
        alone = start.request.one_node or (len(start.placement) == 1 and not start.request.larger)
        placed = _taken(site, replace(start.request, one_node=alone))
        if placed is not None:
            site.starts[start.request.key] = placed
    return site


def _asked(run: Allocation, slots: int) -> SlotRequest:
    """Return a slot request that stands for a gang in the site's queue, to find out whether free slots suffice for it.

    It is for `slots` slots, all on one node if the gang's planned placement has one node.
    """
    excluded = run.elastic.excluded if run.elastic is not None else frozenset[str]()
    return SlotRequest(0, 0, slots, 0.0, excluded, one_node=len(run.placement) == 1)


def _taken(site: Site, request: SlotRequest) -> SlotsByNode | None:
    """Take free slots of a site for a request; return them by node, or None if there are too few."""
    for capacity in site.capacities.values():
        placed = capacity.place(request.slots, request.one_node, request.excluded)
        if placed is not None:
            capacity.take(placed)
            return placed
    return None


def at_site(run: Allocation, site: Site) -> Allocation:
    """Return a gang with the slots that it really holds on the nodes that the site has chosen.

    If the site grants whole nodes only, these are all slots of the nodes.
    """
    names = {node.engine_name: node.name for node in site.nodes}
    shares = [share.model_copy(update={"node": names.get(share.node, share.node)}) for share in run.actual]
    if site.whole is not None:
        shares = [
            share.model_copy(update={"slots": tuple(range(site.whole.get(share.node, len(share.slots))))})
            for share in shares
        ]
    return replace(run, placement=tuple(shares)) if shares else run


def given_back(
    site: Site, candidates: Sequence[Allocation], leaving: Sequence[Source], plans: Sequence[Plan]
) -> Iterator[tuple[str, Source]]:
    """Yield (who waits, slots to take) for those in the site's queue for whom elastic gangs must shrink.

    Gangs shrink only if that frees enough slots for the one who waits. `candidates` are the elastic gangs that may
    shrink, in order; `leaving` has the slots that gangs give up anyway; `plans` are reservations that must be
    respected.
    """
    extra = [Source(at_site(run, site), run.surplus) for run in candidates if run.surplus]
    going = [Source(at_site(each.run, site), each.slots) for each in leaving]
    for name, request in site.waiting:
        chosen = victims(request, site.capacities, site.nodes, extra, going, plans)
        for each in chosen:
            yield name, Source(next(run for run in candidates if run.key == each.run.key), each.slots)
        extra = [each for each in extra if each not in chosen]
        going += chosen


def planned_starts(
    starts: Sequence[Start], where: Mapping[RequestKey, SlotsByNode], capacities: Mapping[str, Capacity]
) -> dict[RequestKey, SlotsByNode]:
    """Return placements for gangs that start in a pool where the site's scheduler (such as Slurm) chooses the nodes.

    Daylight only plans with these placements, until the site's scheduler has started the gangs. `where` is the shape
    that this scheduler would give each gang. A placement in the plan, returned by the request's key, has the same
    number of nodes and of slots on each; a gang is left out if the plan has no such free slots. `capacities`, the free
    slots in the plan by kind of device, are updated.
    """
    found: dict[RequestKey, SlotsByNode] = {}
    for start in starts:
        wanted, capacity = where.get(start.request.key), capacities[start.placement[0].kind]
        if wanted is None:
            continue
        capacity.give(start.by_node)
        placed = planned(wanted, capacity, start.request.excluded)
        capacity.take(placed or start.by_node)
        if placed is not None:
            found[start.request.key] = placed
    return found


def planned(wanted: SlotsByNode, capacity: Capacity, excluded: Iterable[str] = ()) -> SlotsByNode | None:
    """Return slots in Daylight's own plan of a pool, for a gang that the site would place as `wanted`.

    The placement has as many nodes as `wanted`, with the same number of slots on each; the nodes may differ, as the
    site chooses them by itself. None if the plan has no such free slots.

    Examples
    --------
    >>> planned((("n1", 2), ("n2", 1)), Capacity({"n2": 2, "n3": 1}.items()))
    (('n2', 2), ('n3', 1))
    """
    used, found = set(excluded), list[tuple[str, int]]()
    for name, count in wanted:
        here = capacity.free.get(name, 0) >= count and name not in used
        fits = ((name, count),) if here else capacity.place(count, one_node=True, excluded=used)
        if fits is None:
            return None
        found += fits
        used.add(fits[0][0])
    return tuple(found)
