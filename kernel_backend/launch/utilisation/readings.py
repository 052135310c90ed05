"""Define what meters read, and compute the use of a slot from two readings. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from kernel_backend.model.launch.utilisation import SlotUse

Trees = Mapping[int, tuple[int, ...]]  # process ids of each rank: its own, then those of its descendants


class Reading(NamedTuple):
    """Values that meters have read for one rank at one time; None where no meter provides a value."""

    cpu_seconds: float | None = None  # counter: CPU time of the rank's processes
    memory: float | None = None  # bytes
    gpu: float | None = None  # 0 to 1
    gpu_memory: float | None = None  # bytes
    device_memory: float | None = None  # bytes
    device_total: float | None = None  # bytes
    temperature: float | None = None  # degrees Celsius
    power: float | None = None  # watts, for GPUs that count no energy
    joules: float | None = None  # counter: energy of the GPU
    package_joules: float | None = None  # counter: energy of all processors of the node
    busy_seconds: float | None = None  # counter: CPU time of all processes of the node


class Meter(Protocol):
    """Interface of a meter for the slots of ranks. It raises no errors: values that cannot be read are None."""

    def read(self, trees: Trees) -> dict[int, Reading]:
        """Return a reading of each rank, by rank; `trees` has the process ids of each rank."""


def combined(readings: Iterable[Reading]) -> Reading:
    """Return one reading that has the known values of several readings of the same rank."""
    found = Reading()
    for reading in readings:
        found = found._replace(**{name: value for name, value in reading._asdict().items() if value is not None})
    return found


def use_between(before: Reading, now: Reading, seconds: float, at: float) -> SlotUse:
    """Return the use of a slot between the readings `before` and `now`, which are `seconds` apart.

    `at` is the time of the second one, in seconds since the epoch.
    """
    cpu = _rate(before.cpu_seconds, now.cpu_seconds, seconds)
    power = _rate(before.joules, now.joules, seconds)
    package = _rate(before.package_joules, now.package_joules, seconds)
    busy = _rate(before.busy_seconds, now.busy_seconds, seconds)
    shared = package is not None and cpu is not None and busy is not None and busy > 0
    return SlotUse(
        at=at,
        seconds=seconds,
        gpu=now.gpu,
        cpu=cpu,
        memory=now.memory,
        gpu_memory=now.gpu_memory,
        device_memory=now.device_memory,
        device_total=now.device_total,
        temperature=now.temperature,
        power=now.power if power is None else power,
        cpu_power=package * min(1.0, cpu / busy) if shared else None,  # type: ignore[operator]
    )


def _rate(before: float | None, now: float | None, seconds: float) -> float | None:
    """Return how much a counter has increased per second, from two of its values that are `seconds` apart.

    None if a value is unknown, or the counter was reset.
    """
    if before is None or now is None or now < before or seconds <= 0:
        return None
    return (now - before) / seconds
