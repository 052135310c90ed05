"""Compute how many slots of each node a pool can use.

That depends on other pods, the pool's limits, quotas, and nodes that an autoscaler may add.
"""

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
    """Return the pods that occupy slots of a node, each with the number of slots that it occupies.

    `pods` are the node's pods that are not Daylight's. `per_slot` is the amount of `resource` in one slot, `spare` the
    amount on the node beyond its whole slots. Requests are added up, the largest first, and each pod counts for as many
    slots as its request adds to the sum, rounded up. Example: of four pods with half a slot each, two are returned,
    with one slot each.
    """
    found, amount = [], -spare
    for pod in sorted(pods, key=lambda pod: (-pod.requests.get(resource, 0.0), pod.name)):
        before, amount = max(0, _up(amount / per_slot)), amount + pod.requests.get(resource, 0.0)
        if (slots := max(0, _up(amount / per_slot)) - before) > 0:
            found.append(Holder(name=f"pod {pod.name}", slots=slots, since=pod.since, server=pod.server))
    return tuple(found)


def with_new_nodes(nodes: Sequence[Node], pool: Pool, kind: str) -> list[Node]:
    """Return the nodes, followed by the nodes that an autoscaler may still add until the pool has `most_slots` slots.

    Each added node has `node_slots` slots, or if the pool does not set that, as many as the largest existing node.
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
    """Return the nodes with slots removed, so that they have at most `most` in total.

    First the slots of pods for which `counts` returns False are removed, then free slots, then the slots of the other
    pods; in each of these steps, the slots of the last nodes first.
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
    """Return the nodes with their slots reduced to the number that the namespace's quota allows the pool.

    Pods of the namespace on nodes that are not in the pool use up the quota as well. So many free slots are shown as
    occupied by them as the quota does not cover.
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
    """Return a node with up to `most` of its free slots removed."""
    return _with_slots(node, node.slots - min(most, _free(node)), node.held_by)


def _less_held(node: Node, most: int, which: Callable[[Holder], bool]) -> Node:
    """Return a node with up to `most` of those slots removed that pods occupy for which `which` returns True."""
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
