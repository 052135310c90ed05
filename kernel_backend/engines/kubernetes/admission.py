"""Make the pods of a gang start together or not at all, by PodGroups or by Kueue, where the cluster has these.

All functions are pure; `discovery.py` finds out what the cluster has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernel_backend.engines.kubernetes.manifests import Manifest
from kernel_backend.model.cluster.pools import PoolSettings

KUBERNETES, PLUGINS, KUEUE = "scheduling.k8s.io", "scheduling.x-k8s.io", "kueue.x-k8s.io"  # groups of the API
PODGROUPS, WORKLOADS = "podgroups", "workloads"
_PLUGINS_GROUP = f"{PLUGINS}/pod-group"  # label by which the plugins of scheduler-plugins know the pods of a group
_QUEUE, _GROUP = f"{KUEUE}/queue-name", f"{KUEUE}/pod-group-name"  # labels of Kueue
_COUNT, _RETRIABLE = f"{KUEUE}/pod-group-total-count", f"{KUEUE}/retriable-in-group"  # annotations of Kueue


def grouped(objects: Sequence[Manifest], name: str, podgroups: str, settings: PoolSettings) -> list[Manifest]:
    """Return the objects of a gang, changed so that the cluster admits all of its pods together.

    Parameters
    ----------
    objects : sequence of dict
        Objects of the gang, its pods among them.
    name : str
        Name of the group.
    podgroups : str
        Version of the API of PodGroups that the cluster has, such as `scheduling.x-k8s.io/v1alpha1`; "" for none.
        A gang of one pod needs none.
    settings : PoolSettings
        Settings of the pool, of which `queue` is a queue of Kueue.
    """
    pods = sum(each["kind"] == "Pod" for each in objects)
    group = [_pod_group(name, podgroups, pods, objects[-1]["metadata"]["labels"])] if podgroups and pods > 1 else []
    changed = (_member(each, name, podgroups if group else "", pods, settings) for each in objects)
    return [*group, *changed]


def _pod_group(name: str, api: str, pods: int, labels: Mapping[str, str]) -> Manifest:
    spec: Manifest = {"minMember": pods}
    if not api.startswith(PLUGINS):
        spec = {"schedulingPolicy": {"gang": {"minCount": pods}}}
    own = {key: value for key, value in labels.items() if not key.startswith(KUEUE)}
    return {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": name, "labels": own}, "spec": spec}


def _member(manifest: Manifest, name: str, podgroups: str, pods: int, settings: PoolSettings) -> Manifest:
    """Return a pod with the labels and fields that make it a member of the gang's group.

    Any object that is no pod is returned unchanged. `name` is the name of the group, `podgroups` the API version of
    PodGroups ("" if none is used), and `pods` the number of pods in the gang.
    """
    if manifest["kind"] != "Pod":
        return manifest
    metadata, spec = dict(manifest["metadata"]), dict(manifest["spec"])
    if settings.scheduler:
        spec["schedulerName"] = settings.scheduler
    if podgroups.startswith(PLUGINS):
        metadata["labels"] = metadata["labels"] | {_PLUGINS_GROUP: name}
    elif podgroups:
        spec["schedulingGroup"] = {"podGroupName": name}
    if settings.queue:
        metadata["labels"] = metadata["labels"] | {_QUEUE: settings.queue, _GROUP: name}
        # A gang is not completed by other pods: the next attempt is another gang.
        metadata["annotations"] = {_COUNT: str(pods), _RETRIABLE: "false"}
    return manifest | {"metadata": metadata, "spec": spec}


def queue_text(workload: Mapping[str, Any]) -> str:
    """Return why Kueue does not admit a Workload; "" if it has admitted it, or has not processed it yet.

    Examples
    --------
    >>> why = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu"
    >>> waits = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": why}
    >>> queue_text({"status": {"conditions": [waits]}})
    "Kueue: couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu"
    """
    conditions = {each.get("type"): each for each in workload.get("status", {}).get("conditions") or []}
    for name in ("Admitted", "QuotaReserved"):
        found = conditions.get(name, {})
        if found.get("status") == "True" and name == "Admitted":
            return ""
        if found.get("status") == "False" and found.get("message"):
            return f"Kueue: {found['message']}"
    return ""
