"""Work out what elastic gangs may have in a pool whose nodes others use, too, and whose site has its own queue.

Daylight's own plan of such a pool says how many slots its gangs have, but the site chooses their nodes, and others get
nodes of which the plan knows nothing. So elastic gangs have only slots that the engine has seen to be free, less those
of everybody who waits for them, and give them back to a gang or a request of others that waits in the site's queue.
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
    """State of a pool as its site sees it, after all who are about to start have got their slots."""

    nodes: list[Node]  # on which gangs may be placed, and which are there
    capacities: dict[str, Capacity]  # free slots by kind of device
    starts: dict[RequestKey, SlotsByNode] = field(default_factory=dict)  # where gangs that start now would be placed
    waiting: list[tuple[str, SlotRequest]] = field(default_factory=list)  # who waits in vain, the first in order first
    whole: Mapping[str, int] | None = None  # slots of each node, if every gang gets whole nodes


def site_of(cluster: ClusterState, pool: str, load: SiteLoad, starts: Sequence[Start]) -> Site:
    """Return the state of a pool, with the gangs that start there now.

    Gangs that the engine may not have seen yet are placed, too: those that wait in the site's queue, and those that
    have got their slots since the load was read.
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
    """Return what a gang asks the site for; one on a single node is a request for a single node."""
    excluded = run.elastic.excluded if run.elastic is not None else frozenset[str]()
    return SlotRequest(0, 0, slots, 0.0, excluded, one_node=len(run.placement) == 1)


def _taken(site: Site, request: SlotRequest) -> SlotsByNode | None:
    """Take free slots for a request; return where, None if they are too few."""
    for capacity in site.capacities.values():
        placed = capacity.place(request.slots, request.one_node, request.excluded)
        if placed is not None:
            capacity.take(placed)
            return placed
    return None


def at_site(run: Allocation, site: Site) -> Allocation:
    """Return a gang with the slots that it really has, on the site's nodes.

    Of whole nodes it has all slots.
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
    """Yield who waits in the site's queue, with the gang that shrinks for them; only if that gives them enough slots.

    `candidates` are elastic gangs that may be asked, in order; `leaving` is what is given up already.
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
    """Return slots of the plan for gangs that start `where` the site would place them; `capacities` are updated."""
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
    """Return slots of the plan for a gang that the site would place as `wanted`: as many nodes, with equal shares.

    The site chooses the nodes by itself, so that only the shares count. None if the plan has no such slots.

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
