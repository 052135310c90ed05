"""Read the kind of a node's devices from its labels, and whether several pods share each device. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHARED = ".shared"  # end of the resource's name where the device plugin renames shared devices
_PLAIN = "gpu"


def device_word(resource: str) -> str:
    """Return a short name for a resource whose units are parts of a GPU, such as a MIG profile; "" for whole GPUs.

    Examples
    --------
    >>> device_word("nvidia.com/mig-3g.40gb"), device_word("nvidia.com/gpu"), device_word("nvidia.com/gpu.shared")
    ('mig-3g.40gb', '', 'gpu.shared')
    """
    word = resource.rsplit("/", 1)[-1]
    return "" if word == _PLAIN else word


def device_names(item: Mapping[str, Any], resource: str) -> tuple[str]:
    """Return the product name of a node's GPUs, as a tuple of one name, which the caller repeats for each slot.

    The name comes from the labels of NVIDIA's or AMD's feature discovery, in the node's API object `item`. Without such
    labels it is a generic name.
    """
    product = _labels(item).get(f"{resource.removesuffix(_SHARED)}.product", "")
    return (product.replace("-", " ") or device_word(resource) or "GPU",)


def shared_by(item: Mapping[str, Any], resource: str) -> str:
    """Return why a node's devices cannot count as slots, since several pods share each; "" if they are not shared.

    `item` is the node's API object, and `resource` the name of the devices' resource, such as `nvidia.com/gpu`.
    """
    labels, whole = _labels(item), resource.removesuffix(_SHARED)
    strategy, replicas = labels.get(f"{whole}.sharing-strategy", "none"), labels.get(f"{whole}.replicas", "")
    count = int(replicas) if replicas.isdigit() else 1
    if strategy == "none" and count <= 1 and whole == resource:
        return ""
    what = f"each of its devices is shared by up to {count} pods" if count > 1 else "its devices are shared"
    how = f" ({strategy})" if strategy != "none" else ""
    return f"{what}{how}: set `shared_devices` of the pool to have each share count as a slot"


def _labels(item: Mapping[str, Any]) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}
