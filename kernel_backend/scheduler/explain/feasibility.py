"""Detect requests that can never start, and name the largest feasible size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kernel_backend.model.cluster.people import Person
from kernel_backend.model.resources import LOCAL, Node
from kernel_backend.scheduler.explain.redaction import knows_quota, subject
from kernel_backend.scheduler.requests import SlotRequest
from kernel_backend.scheduler.state import ClusterState


class Impossible(NamedTuple):
    """Reason why a request can never start, and the largest number of slots for which it could."""

    reason: str
    largest: int


def impossible(cluster: ClusterState, request: SlotRequest, reader: Person | None = None) -> Impossible | None:
    """Return why a request can never start, given the cluster's nodes and quotas; None if it can in one of its pools.

    Drained nodes are treated as usable. The text is for `reader`, by default the owner of the request.
    """
    found = [impossible_in_pool(cluster, each, reader) for each in request.in_each_pool]
    reasons = [each for each in found if each is not None]
    if len(reasons) < len(found):
        return None
    largest = max(each.largest for each in reasons)
    return Impossible(" ".join(dict.fromkeys(each.reason for each in reasons)), largest)


def impossible_in_pool(cluster: ClusterState, request: SlotRequest, reader: Person | None = None) -> Impossible | None:
    """Return why a request can never start in its pool `request.pool`, as `impossible` does; None if it can."""
    largest = cluster.largest_gang(request.pool, request.one_node, request.excluded)
    if request.slots > largest:
        nodes = [node for node in cluster.of_pool(request.pool) if node.name not in request.excluded]
        if not nodes and not request.excluded and request.pool in cluster.closed_pools:
            return Impossible(f"{cluster.closed_pools[request.pool]}.", largest)
        limit = cluster.limits_of_pools.get(request.pool, "")
        return Impossible(_too_large(request, nodes, largest) + (f" The limit: {limit}." if limit else ""), largest)
    for kind, quota in (("user", cluster.users.quota(request.owner)), ("group", cluster.groups.quota(request.group))):
        if quota.most is not None and request.slots > quota.most:
            nearest, may = (
                min(quota.most, largest),
                f"{_slots(request.slots)} requested; {subject(kind, request, reader)} may",
            )
            if not knows_quota(kind, request, reader):
                return Impossible(f"{may} have fewer in one trial.", nearest)
            return Impossible(
                f"{may} have {quota.most} in one trial. The most for one trial there: {nearest}.", nearest
            )
    return None


def _too_large(request: SlotRequest, nodes: Sequence[Node], largest: int) -> str:
    where = nodes[0].name if request.pool == LOCAL and len(nodes) == 1 else f"pool {request.pool}"
    total = sum(node.slots for node in nodes)
    left_out = f" without {', '.join(sorted(request.excluded))}" if request.excluded else ""
    on_one = " on one node" if request.one_node else ""
    requested = f"{_slots(request.slots)} requested{on_one}; {where}{left_out} has {total}"
    return f"{requested}. The most for one trial there: {largest}."


def _slots(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"
