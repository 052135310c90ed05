"""Detect the compute devices of this machine, by NVML and by variables such as CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.resources import Node

# Environment variable that limits the devices visible to a process, by kind of slot.
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "HIP_VISIBLE_DEVICES"}


def cores() -> int:
    """Return the number of cores in this process's CPU affinity."""
    return len(os.sched_getaffinity(0))


def _cuda_names() -> list[str]:
    """Return the names of the NVIDIA devices that this process may use; empty without a driver or NVML.

    NVML lists all devices of the machine, so that this process's CUDA_VISIBLE_DEVICES is applied here.
    """
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        names = [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    finally:
        pynvml.nvmlShutdown()
    allowed = _allowed("cuda")
    if allowed is None:
        return names
    return [names[int(id)] if id.isdigit() and int(id) < len(names) else id for id in allowed]


def _allowed(kind: str) -> list[str] | None:
    """Return the device ids in the variable for a kind of device, in order; None if the variable is not set.

    For the kind `cuda` it is CUDA_VISIBLE_DEVICES.
    """
    text = os.environ.get(_VISIBLE[kind])
    return None if text is None else [id.strip() for id in text.split(",") if id.strip() not in ("", "-1")]


def _override() -> int | None:
    text = os.environ.get("DAYLIGHT_SLOTS")
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise InvalidRequest(
            f"DAYLIGHT_SLOTS={text!r} is no number of slots: give a whole number from 1 up, or unset it"
        )
    return int(text)


def local_node() -> Node:
    """Return this machine as a node with one slot per GPU, or per core if it has no GPU.

    `DAYLIGHT_SLOTS` sets another number of slots: fewer GPUs, or any number of CPU slots. Raises InvalidRequest if it
    is no positive integer.
    """
    names, wanted = _cuda_names(), _override()
    kind = "cuda" if names else "cpu"
    slots = wanted or len(names) or cores()
    if names and slots > len(names):
        raise InvalidRequest(f"DAYLIGHT_SLOTS={slots}, but there are {len(names)} GPUs here: give at most {len(names)}")
    return Node(
        name=platform.node() or "localhost",
        kind=kind,
        address="127.0.0.1",
        slots=slots,
        cores=cores(),
        devices=tuple(names[:slots]),
    )


def visible_ids(kind: str, slots: Sequence[int]) -> list[str]:
    """Return the ids of the devices of these slots as CUDA_VISIBLE_DEVICES has them: indices or UUIDs.

    Empty for CPU slots. `kind` is the kind of device, such as `cuda`.
    """
    if kind not in _VISIBLE:
        return []
    allowed = _allowed(kind)
    return [allowed[slot] if allowed else str(slot) for slot in slots]


def visible(kind: str, slots: Sequence[int]) -> dict[str, str]:
    """Return environment variables that restrict a process to the devices of these slots; empty for CPU slots.

    `kind` is the kind of device, such as `cuda`, and `slots` are numbers of this machine's slots, from 0.
    """
    return {_VISIBLE[kind]: ",".join(visible_ids(kind, slots))} if kind in _VISIBLE else {}
