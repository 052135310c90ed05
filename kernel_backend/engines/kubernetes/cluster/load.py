"""Compute the load of a pool: the free slots of its nodes, and the pods of others that wait for slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from kernel_backend.engines.kubernetes.cluster.pods import ClusterPod
from kernel_backend.engines.kubernetes.manifests import RESOURCE
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.cluster.site_load import OtherRequest, SiteLoad
from kernel_backend.model.resources import Node

CPU = "cpu"
_SLACK = 1e-9  # quantities are no exact numbers as floats


def slot_unit(settings: PoolSettings, gpus: bool) -> tuple[str, float]:
    """Return the name of the resource of which a pool's slots are made, and the amount of it in one slot.

    `gpus` says whether slots are GPUs.
    """
    return (settings.resource or RESOURCE, 1.0) if gpus else (CPU, float(settings.cpus_per_slot))


def site_load(
    at: float,
    nodes: Sequence[Node],
    items: Sequence[Mapping[str, Any]],
    pool: Pool,
    own: Sequence[ClusterPod],
    others: Sequence[ClusterPod],
) -> SiteLoad:
    """Return the load of a pool at time `at`: free slots of its nodes, and requests of others that wait for slots.

    `items` are the API objects of `nodes`, `own` the pool's own pods, and `others` all other pods.
    """
    unit, per_slot = slot_unit(pool.settings, any(node.kind != CPU for node in nodes))

    def slots(pod: ClusterPod) -> int:
        return ceil(pod.requests.get(unit, 0.0) / per_slot - _SLACK)

    held: Counter[str] = Counter()
    for pod in own:
        held[pod.node] += slots(pod)
    there = [node for node in nodes if node.usable and not node.future]
    free = {node.engine_name: _free(node) - held[node.engine_name] for node in there}
    labels = [_labels(each) for each in items if each["metadata"]["name"] in free]
    waiting = tuple(
        OtherRequest(name=f"pod {pod.name}", slots=slots(pod), one_node=True)
        for pod in _for_nodes(others, labels)
        if slots(pod) > 0
    )
    return SiteLoad(at=at, free={name: max(0, count) for name, count in free.items()}, waiting=waiting)


def _for_nodes(pods: Sequence[ClusterPod], labels: Sequence[Mapping[str, str]]) -> Iterator[ClusterPod]:
    """Yield the pods that wait to be scheduled and whose node selector matches the labels of any of these nodes.

    The oldest come first. Affinities and tolerations are ignored, so that some of these pods may fit none of the nodes.
    """
    for pod in sorted(pods, key=lambda pod: (pod.since, pod.name)):
        waits = not (pod.of_the_node or pod.node or pod.gated)
        if waits and any(pod.selector.items() <= each.items() for each in labels):
            yield pod


def _free(node: Node) -> int:
    return node.slots - sum(each.slots for each in node.held_by)


def _labels(item: Mapping[str, Any]) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}
