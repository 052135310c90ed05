"""Compute how many slots of a pool the ResourceQuotas of its namespace allow. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kernel_backend.engines.kubernetes.cluster.pods import ClusterPod
from kernel_backend.engines.kubernetes.quantities import quantity
from kernel_backend.model.cluster.pools import PoolSettings

_MI = 1024.0**2
_SLACK = 1e-9  # quantities are no exact numbers as floats


class QuotaLimit(NamedTuple):
    """Limit on the number of a pool's slots, set by the quotas of its namespace."""

    namespace: str
    slots: int  # that the pool may have if no other pod of the namespace has any
    left: int  # that the pool may have next to the other pods of the namespace
    text: str  # as `namespace lab: quota gpus: requests.nvidia.com/gpu 6 of 8 in use`


def costs(settings: PoolSettings, resource: str) -> dict[str, float]:
    """Return the amount of each resource that one slot requests: a device, CPUs, and memory if the pool limits it.

    `resource` is the device's resource, or `cpu`.

    Examples
    --------
    >>> costs(PoolSettings(engine="kubernetes", image="i", cpus_per_slot=4), "nvidia.com/gpu")
    {'cpu': 4.0, 'nvidia.com/gpu': 1.0}
    """
    found = {"cpu": float(settings.cpus_per_slot)}
    if resource != "cpu":
        found[resource] = 1.0
    if settings.memory_per_slot is not None:
        found["memory"] = settings.memory_per_slot * _MI
    return found


def quota_limit(
    items: Iterable[Mapping[str, Any]], namespace: str, pods: Sequence[ClusterPod], cost: Mapping[str, float]
) -> QuotaLimit | None:
    """Return the tightest limit on slots that the namespace's quotas set; None if they limit no resource of a slot.

    `items` are the ResourceQuotas as API objects, `pods` the pods of the cluster, and `cost` has the amount of each
    resource that one slot requests. Quotas with scopes are ignored, as only Kubernetes can decide which pods they
    count.
    """
    there = [each for each in pods if each.namespace == namespace]
    found = []
    for item in items:
        spec, status = item.get("spec", {}), item.get("status", {})
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        for name, text in (status.get("hard") or spec.get("hard") or {}).items():
            resource = _resource(name)
            if cost.get(resource):
                used = sum(each.requests.get(resource, 0.0) for each in there)
                others = sum(each.requests.get(resource, 0.0) for each in there if not each.own)
                hard, per = quantity(str(text)), cost[resource]
                says = (
                    f"namespace {namespace}: quota {item['metadata']['name']}: {name} {_amount(used)} of {text} in use"
                )
                found.append(QuotaLimit(namespace, whole_slots(hard, per), whole_slots(hard - others, per), says))
    if not found:
        return None
    tightest = min(found, key=lambda each: (each.left, each.slots))
    return tightest._replace(slots=min(each.slots for each in found))


def whole_slots(amount: float, per_slot: float) -> int:
    """Return how many whole slots fit in an amount of a resource.

    Examples
    --------
    >>> whole_slots(3.3 - 0.3, 1.0), whole_slots(7.9, 4.0), whole_slots(-1.0, 1.0)
    (3, 1, 0)
    """
    return max(0, int(amount / per_slot + _SLACK))


def _resource(name: str) -> str:
    """Return the resource that an entry of a quota limits: `cpu` for `requests.cpu`, `limits.cpu` and `cpu`.

    Limits and requests need not be distinguished, since they are equal in the pods of gangs.
    """
    return name.removeprefix("requests.").removeprefix("limits.")


def _amount(value: float) -> str:
    """Return an amount as text for users: in GiB from 1 MiB on, as such an amount is memory, else as a number."""
    if value >= _MI:
        return f"{value / 1024**3:.3g}Gi"
    return f"{value:g}"
