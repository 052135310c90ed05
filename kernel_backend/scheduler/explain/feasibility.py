"""Detect requests that can never be met, and report the nearest feasible size at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kernel_backend.model.cluster.people import Person
from kernel_backend.model.resources import LOCAL, Node
from kernel_backend.scheduler.explain.redaction import knows_quota, subject
from kernel_backend.scheduler.requests import SlotRequest
from kernel_backend.scheduler.state import ClusterState


class Impossible(NamedTuple):
    """Hold the reason, and the most slots that would be feasible."""

    reason: str
    largest: int


def impossible(picture: ClusterState, ask: SlotRequest, reader: Person | None = None) -> Impossible | None:
    """Return why `ask` can never start on these nodes under these quotas; None where it can.

    Drained nodes count. The text is for `reader`, by default the owner.
    """
    largest = picture.largest_gang(ask.pool, ask.one_node, ask.excluded)
    if ask.slots > largest:
        nodes = [node for node in picture.of_pool(ask.pool) if node.name not in ask.excluded]
        return Impossible(_too_large(ask, nodes, largest), largest)
    for kind, quota in (("user", picture.users.quota(ask.owner)), ("group", picture.groups.quota(ask.group))):
        if quota.most is not None and ask.slots > quota.most:
            nearest, may = min(quota.most, largest), f"{_slots(ask.slots)} asked; {subject(kind, ask, reader)} may"
            if not knows_quota(kind, ask, reader):
                return Impossible(f"{may} have fewer in one trial.", nearest)
            return Impossible(f"{may} have {quota.most} in one trial. Largest gang there: {nearest}.", nearest)
    return None


def _too_large(ask: SlotRequest, nodes: Sequence[Node], largest: int) -> str:
    where = nodes[0].name if ask.pool == LOCAL and len(nodes) == 1 else f"pool {ask.pool}"
    total = sum(node.slots for node in nodes)
    left_out = f" without {', '.join(sorted(ask.excluded))}" if ask.excluded else ""
    on_one = " on one node" if ask.one_node else ""
    return f"{_slots(ask.slots)} asked{on_one}; {where}{left_out} has {total}. Largest gang there: {largest}."


def _slots(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"
