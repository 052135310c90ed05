"""Follow all pods of a cluster, to know what other pods request on a pool's nodes and in its namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from kernel_backend.engines.kubernetes.api import Api
from kernel_backend.engines.kubernetes.manifests import of_pool
from kernel_backend.engines.kubernetes.quantities import quantity, seconds
from kernel_backend.engines.kubernetes.refusals import Refused
from kernel_backend.engines.kubernetes.watch import PodFollower

EVERYWHERE = "/api/v1/pods"
_NOT_OVER = "status.phase!=Succeeded,status.phase!=Failed"
_USER, _SERVER = "hub.jupyter.org/username", "hub.jupyter.org/servername"  # annotations of KubeSpawner's pods
_OF_THE_NODE = frozenset({"DaemonSet", "Node"})  # owners of pods that a node always has


class ClusterPod(NamedTuple):
    """Pod of the cluster, with the resources that it requests."""

    name: str  # with its namespace: `jhub/jupyter-ada`
    node: str  # "" until it is scheduled
    requests: Mapping[str, float]  # by resource, in Kubernetes' units
    since: float
    own: bool = False  # of this service and pool
    server: str = ""  # full name of the notebook server that it is, such as `ada/`
    of_the_node: bool = False  # of a DaemonSet, or static: the node always has it
    selector: Mapping[str, str] = MappingProxyType({})  # labels that its node must have
    gated: bool = False  # kept from being scheduled, such as by Kueue

    @property
    def namespace(self) -> str:
        """Return the namespace of the pod."""
        return self.name.split("/", 1)[0]


class ClusterPods(PodFollower):
    """Cache of the pods of the cluster that have not ended.

    If the service may not list the pods of all namespaces, it has only those of its own namespace.
    """

    def __init__(self, api: Api, service: str, pool: str) -> None:
        super().__init__(api, {"fieldSelector": _NOT_OVER}, f"pods next to those of pool {pool}")
        self._own = of_pool(service, pool)
        self._pods: dict[str, ClusterPod] = {}  # by uid
        self._changes = 0
        self.everywhere = True  # whether those of other namespaces are known

    async def changes(self) -> int:
        """Start or continue to follow the pods; return a number that grows whenever a pod's node or requests change.

        The caller compares it with an earlier number to see whether it must compute its results anew.
        """
        await self._ask()
        return self._changes

    def last(self) -> Sequence[ClusterPod]:
        """Return the pods that are cached now; empty before the first list has arrived."""
        return [*self._pods.values()]

    async def _path(self) -> str:
        try:
            await self._api.get(EVERYWHERE, {"limit": 1})
        except Refused as error:
            if error.status != 403:
                raise
            self.everywhere = False
            return await super()._path()
        self.everywhere = True
        return EVERYWHERE

    def _replace(self, pods: Sequence[dict[str, Any]]) -> None:
        self._pods = {each["metadata"]["uid"]: cluster_pod(each, self._own) for each in pods}
        self._changes += 1

    def _take(self, event: str, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        before = self._pods.pop(uid, None)
        if event != "DELETED":
            self._pods[uid] = cluster_pod(pod, self._own)
        self._changes += self._pods.get(uid) != before


def cluster_pod(pod: Mapping[str, Any], own: Mapping[str, str] = MappingProxyType({})) -> ClusterPod:
    """Return the fields of a pod that Daylight uses, from its API object.

    `own` are the labels that all of the pool's own pods have.
    """
    metadata, spec = pod["metadata"], pod.get("spec", {})
    about = metadata.get("annotations") or {}
    owners = {each.get("kind") for each in metadata.get("ownerReferences") or []}
    return ClusterPod(
        name=f"{metadata.get('namespace', '')}/{metadata['name']}",
        node=spec.get("nodeName") or "",
        requests=requests(spec),
        since=seconds(metadata.get("creationTimestamp")) or 0.0,
        own=own.items() <= (metadata.get("labels") or {}).items(),
        server=f"{about[_USER]}/{about.get(_SERVER, '')}" if about.get(_USER) else "",
        of_the_node=bool(owners & _OF_THE_NODE),
        selector=spec.get("nodeSelector") or {},
        gated=bool(spec.get("schedulingGates")),
    )


def requests(spec: Mapping[str, Any]) -> dict[str, float]:
    """Return the amount of each resource that Kubernetes' scheduler reserves for a pod, from the pod's `spec`.

    It is the larger of the sum over its containers and the most that any init container requests, plus the pod's
    overhead.

    Examples
    --------
    >>> requests({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}, {}]})
    {'nvidia.com/gpu': 2.0}
    """
    first = spec.get("initContainers") or []
    lasting = [*(spec.get("containers") or []), *(each for each in first if each.get("restartPolicy") == "Always")]
    found: dict[str, float] = {}
    for each in lasting:
        for name, amount in _amounts(each).items():
            found[name] = found.get(name, 0.0) + amount
    for each in first:
        for name, amount in _amounts(each).items():
            found[name] = max(found.get(name, 0.0), amount)
    for name, text in (spec.get("overhead") or {}).items():
        found[name] = found.get(name, 0.0) + quantity(str(text))
    return found


def _amounts(container: Mapping[str, Any]) -> dict[str, float]:
    given = container.get("resources") or {}
    texts = {**(given.get("limits") or {}), **(given.get("requests") or {})}  # a limit alone is also the request
    return {name: quantity(str(text)) for name, text in texts.items()}
