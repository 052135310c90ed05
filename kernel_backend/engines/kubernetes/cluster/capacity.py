"""Compute the slots of a pool's nodes: less what other pods hold, up to its limits, with nodes that may be added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import ceil

from kernel_backend.engines.kubernetes.cluster.pods import ClusterPod
from kernel_backend.engines.kubernetes.cluster.quotas import QuotaLimit
from kernel_backend.model.cluster.pools import Pool
from kernel_backend.model.resources import Holder, Node

NEW = "new-"  # begin of the names of nodes that an autoscaler may add
_SLACK = 1e-9  # quantities are no exact numbers as floats


def holders(pods: Iterable[ClusterPod], resource: str, per_slot: float, spare: float) -> tuple[Holder, ...]:
    """Return the pods of others on a node, with the slots that they hold.

    `spare` is the amount of the resource that is no whole slot. Pods with less than a slot each hold one together, in
    the name of the one by which it is full.
    """
    found, amount = [], -spare
    for pod in sorted(pods, key=lambda pod: (-pod.requests.get(resource, 0.0), pod.name)):
        before, amount = max(0, _up(amount / per_slot)), amount + pod.requests.get(resource, 0.0)
        if (slots := max(0, _up(amount / per_slot)) - before) > 0:
            found.append(Holder(name=f"pod {pod.name}", slots=slots, since=pod.since, server=pod.server))
    return tuple(found)


def with_new_nodes(nodes: Sequence[Node], pool: Pool, kind: str) -> list[Node]:
    """Return the nodes with those that an autoscaler may add, up to the pool's `most_slots`.

    A new node is as large as the largest that there is, or as `node_slots` of the pool says.
    """
    settings = pool.settings
    size = settings.node_slots or max((node.slots for node in nodes), default=0)
    missing = (settings.most_slots or 0) - sum(node.slots for node in nodes)
    found, number = list(nodes), 1
    while size and missing > 0:
        slots = min(size, missing)
        new = Node(
            name=f"{NEW}{number}",
            kind=kind,
            address="",
            slots=slots,
            cores=slots * settings.cpus_per_slot,
            pool=pool.name,
            state="not there yet",
            future=True,
        )
        found.append(new)
        missing, number = missing - slots, number + 1
    return found


def limited(nodes: Sequence[Node], most: int, counts: Callable[[Holder], bool]) -> list[Node]:
    """Return the nodes with at most `most` slots in total.

    First the slots of holders that do not count towards the limit are left out, then free ones, those of the last
    nodes first.
    """
    excess, found = sum(node.slots for node in nodes) - most, list(nodes)

    def others(holder: Holder) -> bool:
        return not counts(holder)

    steps = (partial(_less_held, which=others), _less_free, partial(_less_held, which=counts))
    for less in steps:
        for place in reversed(range(len(found))):
            fewer = less(found[place], max(0, excess))
            excess -= found[place].slots - fewer.slots
            found[place] = fewer
    return found


def under_quota(nodes: Sequence[Node], quota: QuotaLimit) -> list[Node]:
    """Return the nodes with as many slots, and as many free ones, as the quota of the namespace lets the pool have.

    What pods of the namespace have elsewhere, or wait for, is held by the quota itself.
    """
    found = limited(nodes, quota.slots, lambda holder: holder.name.startswith(f"pod {quota.namespace}/"))
    beyond = sum(map(_free, found)) - quota.left
    for place in reversed(range(len(found))):
        if (taken := min(max(0, beyond), _free(found[place]))) > 0:
            held = Holder(name=f"other pods of namespace {quota.namespace}", slots=taken)
            found[place] = found[place].model_copy(update={"held_by": (*found[place].held_by, held)})
            beyond -= taken
    return found


def _free(node: Node) -> int:
    return max(0, node.slots - sum(each.slots for each in node.held_by))


def _less_free(node: Node, most: int) -> Node:
    """Return a node without up to `most` of its free slots."""
    return _with_slots(node, node.slots - min(most, _free(node)), node.held_by)


def _less_held(node: Node, most: int, which: Callable[[Holder], bool]) -> Node:
    """Return a node without up to `most` of the slots that these holders have."""
    held, left = list[Holder](), most
    for each in node.held_by:
        taken = min(left, each.slots) if which(each) else 0
        left -= taken
        if each.slots > taken:
            held.append(each.model_copy(update={"slots": each.slots - taken}) if taken else each)
    return _with_slots(node, node.slots - (most - left), tuple(held))


def _with_slots(node: Node, slots: int, held_by: tuple[Holder, ...]) -> Node:
    if slots == node.slots:
        return node
    return node.model_copy(update={"slots": slots, "devices": node.devices[:slots], "held_by": held_by})


def _up(value: float) -> int:
    return ceil(value - _SLACK)
