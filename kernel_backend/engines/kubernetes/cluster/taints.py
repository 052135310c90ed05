"""Read the taints of nodes: whether a pool's pods tolerate them, and whether they announce a node's shutdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_backend.engines.kubernetes.manifests import toleration
from kernel_backend.model.cluster.pools import PoolSettings

_OF_KUBERNETES = "node.kubernetes.io/"  # taints by which it reports a condition of the node, as `unschedulable`
# Taints by which clouds and autoscalers announce that a node will end, as that of a spot instance.
_NOTICES = frozenset(
    {
        "cloud.google.com/impending-node-termination",
        "node.kubernetes.io/out-of-service",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "ToBeDeletedByClusterAutoscaler",
    }
)
_NOTICE_OF_AWS = "aws-node-termination-handler/"


def termination_notice(item: Mapping[str, Any]) -> str:
    """Return the taint that announces a node's shutdown; "" if it has none.

    Examples
    --------
    >>> termination_notice({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}})
    'karpenter.sh/disrupted'
    """
    return next((str(each["key"]) for each in _taints(item) if _is_notice(each)), "")


def tolerated(item: Mapping[str, Any], settings: PoolSettings) -> bool:
    """Return whether pods with the tolerations in a pool's settings may run on a node, given by its API object.

    Taints that mean "not ready", "cordoned" or "shutting down" are ignored.
    """
    hard = [each for each in _taints(item) if each["effect"] != "PreferNoSchedule" and not _is_notice(each)]
    own = [each for each in hard if not each["key"].startswith(_OF_KUBERNETES)]
    known = [toleration(each) for each in settings.tolerations]
    return all(any(_tolerates(each, taint) for each in known) for taint in own)


def _taints(item: Mapping[str, Any]) -> list[dict[str, str]]:
    return item.get("spec", {}).get("taints") or []


def _is_notice(taint: Mapping[str, str]) -> bool:
    return taint["key"] in _NOTICES or taint["key"].startswith(_NOTICE_OF_AWS)


def _tolerates(known: dict[str, str], taint: dict[str, str]) -> bool:
    if known["key"] and known["key"] != taint["key"]:
        return False
    value = known["operator"] == "Exists" or known.get("value", "") == taint.get("value", "")
    return value and known.get("effect") in (None, taint["effect"])
