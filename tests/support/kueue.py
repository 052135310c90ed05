"""Simulate Kueue on the stub of an API server: its webhook and its controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.kubernetes_stub import Cluster

API = "kueue.x-k8s.io/v1beta1"
GROUP = "kueue.x-k8s.io/pod-group-name"
WHY = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed"


def hold(cluster: Cluster, pod: dict[str, Any]) -> None:
    """Gate a new pod of a group, and create the group's Workload, if the cluster has Kueue."""
    group = pod["metadata"]["labels"].get(GROUP)
    if group is None or API not in cluster.groups:
        return
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    waits = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": WHY}
    if ("workloads", group) not in cluster.objects:
        cluster.create("workloads", {"metadata": {"name": group}, "status": {"conditions": [waits]}})


def admit(cluster: Cluster, group: str) -> None:
    """Admit the pods of a group, by removing their scheduling gates."""
    for (kind, _), pod in list(cluster.objects.items()):
        if kind == "pods" and pod["metadata"]["labels"].get(GROUP) == group:
            pod["spec"].pop("schedulingGates", None)
            cluster.put("pods", pod, "MODIFIED")
