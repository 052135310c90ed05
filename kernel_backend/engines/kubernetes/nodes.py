"""List the nodes of a pool at most twice a minute: those with its labels, whose taints its pods tolerate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.manifests import RESOURCE, toleration
from kernel_backend.engines.kubernetes.quantities import quantity
from kernel_backend.engines.kubernetes.refusals import Refused, advice
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.resources import Node

EVERY_S = 30.0
PATH = "/api/v1/nodes"
_PRODUCT = "nvidia.com/gpu.product"  # label by which NVIDIA's feature discovery names the devices
_OF_KUBERNETES = "node.kubernetes.io/"  # taints by which it reports a condition of the node, as `unschedulable`


class PoolNodes:
    """Cache of the nodes of a pool."""

    def __init__(self, pool: Pool, api: Api) -> None:
        self._pool, self._api = pool, api
        self._asked_at, self._nodes = 0.0, list[Node]()

    @property
    def away(self) -> list[str]:
        """Return the names of the nodes that were not ready when they were last listed."""
        return [node.name for node in self._nodes if not node.healthy]

    async def newest(self) -> Sequence[Node]:
        """Return the nodes, at most half a minute old; raises EngineUnavailable."""
        if not self._asked_at or time.monotonic() > self._asked_at + EVERY_S:
            try:
                listed = await self._api.get(PATH, {"labelSelector": ",".join(self._pool.settings.node_selector)})
            except Refused as error:
                raise EngineUnavailable(f"Kubernetes: {error.message}. To change: {advice(error)}") from None
            nodes = parse_nodes(listed["items"], self._pool)
            if not nodes:
                raise EngineUnavailable(f"Kubernetes has no node for this pool: {_wanted(self._pool.settings)}")
            self._asked_at, self._nodes = time.monotonic(), nodes
        return self._nodes


def parse_nodes(items: Sequence[dict[str, Any]], pool: Pool) -> list[Node]:
    """Return the nodes on which pods of a pool may run, up to its `most_slots`."""
    settings = pool.settings
    mine, resource = [each for each in items if _tolerated(each, settings)], settings.resource or RESOURCE
    gpus = settings.gpus if settings.gpus is not None else any(_offered(each, resource) for each in mine)
    mine.sort(key=lambda each: bool(_condition(each)))  # nodes that are away do not use up `most_slots`
    found, left = list[Node](), settings.most_slots
    for each in mine:
        cores = _offered(each, "cpu")
        slots = _offered(each, resource) if gpus else cores // settings.cpus_per_slot
        if left is not None:
            slots = min(slots, left)
            left -= slots
        found.append(_node(each, pool.name, "cuda" if gpus else "cpu", slots, cores))
    return found


def _node(item: dict[str, Any], pool: str, kind: str, slots: int, cores: int) -> Node:
    metadata, cordoned, problem = item["metadata"], bool(item.get("spec", {}).get("unschedulable")), _condition(item)
    product = metadata.get("labels", {}).get(_PRODUCT, "").replace("-", " ") or "GPU"
    addresses = item.get("status", {}).get("addresses", [])
    internal = next((each["address"] for each in addresses if each["type"] == "InternalIP"), metadata["name"])
    return Node(
        name=metadata["name"],
        kind=kind,
        address=internal,
        slots=slots,
        cores=max(1, cores),
        devices=(product,) * slots if kind == "cuda" else (),
        healthy=not problem,
        pool=pool,
        drained=cordoned,
        state="cordoned" if cordoned else ("NotReady" if problem else "Ready"),
        reason=problem,
    )


def _offered(item: dict[str, Any], resource: str) -> int:
    return int(quantity(str(item.get("status", {}).get("allocatable", {}).get(resource, "0"))))


def _condition(item: dict[str, Any]) -> str:
    """Return why a node is not ready; "" if it is."""
    for each in item.get("status", {}).get("conditions", []):
        if each["type"] == "Ready":
            return "" if each["status"] == "True" else str(each.get("message") or each.get("reason") or "NotReady")
    return "it has not reported its state"


def _tolerated(item: dict[str, Any], settings: PoolSettings) -> bool:
    """Return whether pods may run on a node, once it is ready and nobody has cordoned it."""
    taints = item.get("spec", {}).get("taints") or []
    hard = [each for each in taints if each["effect"] != "PreferNoSchedule"]
    own = [each for each in hard if not each["key"].startswith(_OF_KUBERNETES)]
    known = [toleration(each) for each in settings.tolerations]
    return all(any(_tolerates(each, taint) for each in known) for taint in own)


def _tolerates(known: dict[str, str], taint: dict[str, str]) -> bool:
    if known["key"] and known["key"] != taint["key"]:
        return False
    value = known["operator"] == "Exists" or known.get("value", "") == taint.get("value", "")
    return value and known.get("effect") in (None, taint["effect"])


def _wanted(settings: PoolSettings) -> str:
    labels = " ".join(settings.node_selector)
    return f"none has the labels {labels}, and taints that it tolerates" if labels else "its pods tolerate no node"
