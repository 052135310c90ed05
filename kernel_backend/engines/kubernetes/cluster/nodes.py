"""List a pool's nodes, at most twice a minute: those that have its labels and whose taints its pods tolerate."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from kernel_backend.engines.base import EngineUnavailable
from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.cluster.capacity import holders, limited, under_quota, with_new_nodes
from kernel_backend.engines.kubernetes.cluster.devices import device_names, device_word, shared_by
from kernel_backend.engines.kubernetes.cluster.load import CPU, site_load, slot_unit
from kernel_backend.engines.kubernetes.cluster.pods import ClusterPod, ClusterPods
from kernel_backend.engines.kubernetes.cluster.quotas import costs, quota_limit, whole_slots
from kernel_backend.engines.kubernetes.cluster.taints import termination_notice, tolerated
from kernel_backend.engines.kubernetes.manifests import RESOURCE
from kernel_backend.engines.kubernetes.quantities import quantity
from kernel_backend.engines.kubernetes.refusals import Refused, advice
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from kernel_backend.model.cluster.site_load import SiteLoad
from kernel_backend.model.resources import Node

EVERY_S = 30.0
PATH = "/api/v1/nodes"
SHARED = "shared devices"
_QUEUED = "Kueue admits its gangs, and what waits in its queues cannot be seen by its pods"
_NOT_EVERYWHERE = (
    "the service may not list the pods of other namespaces, so that it cannot see whether they wait for slots: "
    "let its account list and watch pods in the whole cluster"
)


class PoolNodes:
    """Cache of a pool's nodes, of the slots that other pods occupy on them, and of the limit that quotas set."""

    def __init__(self, pool: Pool, api: Api, pods: ClusterPods) -> None:
        self._pool, self._api, self._pods = pool, api, pods
        self._asked_at, self._items, self._quotas = 0.0, list[dict[str, Any]](), list[dict[str, Any]]()
        self._seen: tuple[float, int] | None = None
        self._nodes: Sequence[Node] = ()
        self.limit = ""  # what quotas of the namespace leave to the pool, if that is less than its nodes offer

    @property
    def away(self) -> list[str]:
        """Return the names of the nodes that were not ready when they were last listed."""
        return [node.name for node in self._nodes if not node.healthy]

    @property
    def ending(self) -> dict[str, str]:
        """Return the nodes whose shutdown is announced, by name, with the taint that announces it.

        The nodes are those of the last listing.
        """
        notices = ((each["metadata"]["name"], termination_notice(each)) for each in self._items)
        return {name: notice for name, notice in notices if notice}

    async def newest(self) -> Sequence[Node]:
        """Return the nodes, listed at most 30 s ago, with the slots that other pods occupy now.

        Raises EngineUnavailable if the nodes cannot be listed, or if the cluster has no node for the pool.
        """
        if not self._asked_at or time.monotonic() > self._asked_at + EVERY_S:
            try:
                listed = await self._api.get(PATH, {"labelSelector": ",".join(self._pool.settings.node_selector)})
            except Refused as error:
                raise EngineUnavailable(f"Kubernetes: {error.message}. To change: {advice(error)}") from None
            self._quotas = await self._read_quotas()
            self._asked_at, self._items = time.monotonic(), listed["items"]
        seen = self._asked_at, await self._pods.changes()
        if self._seen != seen:
            quotas = Quotas(await self._api.namespace(), self._quotas)
            self._nodes, self.limit = pool_nodes(self._items, self._pool, self._pods.last(), quotas)
            self._seen = seen
        if not self._nodes:
            self._asked_at = 0.0
            raise EngineUnavailable(f"Kubernetes has no node for this pool: {_wanted(self._pool.settings)}")
        return self._nodes

    async def load(self, at: float, own: Sequence[ClusterPod]) -> SiteLoad:
        """Return the free slots of the nodes now, and the pods of others that wait for them; raise EngineUnavailable.

        `own` are the pool's own pods, as they were listed at time `at`. If the service cannot see which pods wait, the
        result has only the field `problem`, which says why.
        """
        nodes = await self.newest()
        if self._pool.settings.queue:
            return SiteLoad(at=at, problem=_QUEUED, hidden=True)
        if not self._pods.everywhere:
            return SiteLoad(at=at, problem=_NOT_EVERYWHERE, hidden=True)
        others = [pod for pod in self._pods.last() if not pod.own]
        return site_load(at, nodes, self._items, self._pool, own, others)

    async def _read_quotas(self) -> list[dict[str, Any]]:
        """Return the namespace's quotas; [] if the service may not list them: then only Kubernetes can enforce them."""
        try:
            return list((await self._api.get(await self._api.of("resourcequotas")))["items"])
        except Refused:
            return []


class Quotas(NamedTuple):
    """ResourceQuotas of a namespace, as the API server lists them."""

    namespace: str
    items: Sequence[dict[str, Any]] = ()


def pool_nodes(
    items: Sequence[dict[str, Any]], pool: Pool, pods: Sequence[ClusterPod] = (), quotas: Quotas | None = None
) -> tuple[list[Node], str]:
    """Return a pool's nodes with their slots, and a sentence for users on the limit that quotas set ("" if none).

    The slots are reduced to the limits of the pool and to those of the quotas. `items` are the API objects of the
    nodes, `pods` all pods of the cluster that are known.
    """
    settings = pool.settings
    mine, resource = [each for each in items if tolerated(each, settings)], settings.resource or RESOURCE
    offered = any(_offered(each, resource) for each in mine) if mine else settings.resource is not None
    gpus = settings.gpus if settings.gpus is not None else offered
    mine.sort(key=lambda each: bool(_condition(each)))  # nodes that are away do not use up `most_slots`
    there: defaultdict[str, list[ClusterPod]] = defaultdict(list)
    for pod in pods:
        there[pod.node].append(pod)
    unit, per_slot = slot_unit(settings, gpus)
    nodes = [_node(each, pool, unit, per_slot, there[each["metadata"]["name"]]) for each in mine]
    nodes = with_new_nodes(nodes, pool, "cuda" if gpus else "cpu")
    limit = None if quotas is None else quota_limit(quotas.items, quotas.namespace, pods, costs(settings, unit))
    binding = limit is not None and limit.left < sum(node.slots for node in nodes)
    if limit is not None and binding:
        nodes = under_quota(nodes, limit)
    if settings.most_slots is not None:
        nodes = limited(nodes, settings.most_slots, lambda holder: False)
    return nodes, limit.text if limit is not None and binding else ""


def _node(item: dict[str, Any], pool: Pool, unit: str, per_slot: float, pods: Sequence[ClusterPod]) -> Node:
    """Return a node, from its API object, with its slots and those of them that other pods occupy.

    Each slot has the amount `per_slot` of the resource `unit`. `pods` are the pods on the node.
    """
    metadata, settings, problem = item["metadata"], pool.settings, _condition(item)
    cordoned, notice = bool(item.get("spec", {}).get("unschedulable")), termination_notice(item)
    addresses = item.get("status", {}).get("addresses", [])
    internal = next((each["address"] for each in addresses if each["type"] == "InternalIP"), metadata["name"])
    amount = _offered(item, unit) - sum(each.requests.get(unit, 0.0) for each in pods if each.of_the_node)
    sharing = "" if unit == CPU or settings.shared_devices else shared_by(item, unit)
    slots = 0 if sharing else whole_slots(amount, per_slot)
    others = [each for each in pods if not each.own and not each.of_the_node]
    state = "cordoned" if cordoned else "NotReady" if problem else SHARED if sharing else "Ready"
    return Node(
        name=metadata["name"],
        kind="cpu" if unit == CPU else "cuda",
        address=internal,
        slots=slots,
        cores=max(1, int(_offered(item, CPU))),
        devices=device_names(item, unit) * slots if unit != CPU else (),
        device=device_word(unit) if unit != CPU else "",
        healthy=not problem,
        pool=pool.name,
        drained=cordoned or bool(notice),
        state="ending" if notice else state,
        reason=f"its end is announced ({notice})" if notice else problem or sharing,
        held_by=holders(others, unit, per_slot, amount - slots * per_slot) if slots else (),
    )


def _offered(item: dict[str, Any], resource: str) -> float:
    return quantity(str(item.get("status", {}).get("allocatable", {}).get(resource, "0")))


def _condition(item: dict[str, Any]) -> str:
    """Return why a node, given by its API object, is not ready; "" if it is ready."""
    for each in item.get("status", {}).get("conditions", []):
        if each["type"] == "Ready":
            return "" if each["status"] == "True" else str(each.get("message") or each.get("reason") or "NotReady")
    return "it has not reported its state"


def _wanted(settings: PoolSettings) -> str:
    labels = " ".join(settings.node_selector)
    none = f"none has the labels {labels}, and taints that it tolerates" if labels else "its pods tolerate no node"
    return f"{none}. If an autoscaler adds nodes, set `most_slots`, `node_slots`, and `resource` for GPUs"
