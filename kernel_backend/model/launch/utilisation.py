"""Define the measured use of slots: records that launchers deliver, and those that the service returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field, FiniteFloat

from kernel_backend.model.record import Record

MOST_DELIVERED = 4096  # records in one delivery
LATEST = 0  # number of the record that each newer one replaces
_JOULES_PER_KWH = 3.6e6

Measured = Annotated[FiniteFloat, Field(ge=0, le=1e15)] | None


class SlotUse(Record):
    """Use of a slot in the `seconds` before `at`; a value that cannot be measured is None, never 0.

    Bytes and temperature are the largest of the period, all others its mean.
    """

    at: FiniteFloat = 0.0  # end of the period, seconds since the epoch (UTC)
    seconds: Annotated[FiniteFloat, Field(ge=0, le=1e9)] = 0.0
    gpu: Measured = None  # fraction of the time in which the GPU computed, 0 to 1
    cpu: Measured = None  # cores in use by the rank's processes
    memory: Measured = None  # bytes of main memory of the rank's processes
    gpu_memory: Measured = None  # bytes of the GPU's memory that the rank's processes hold
    device_memory: Measured = None  # bytes of the GPU's memory in use by any process
    device_total: Measured = None  # bytes of the GPU's memory
    temperature: Measured = None  # of the GPU, degrees Celsius
    power: Measured = None  # of the GPU, watts
    cpu_power: Measured = None  # watts of the node's processors, in proportion to the rank's share of the CPU time

    @property
    def watts(self) -> float | None:
        """Return the known power of GPU and processors; None if neither is known."""
        known = [each for each in (self.power, self.cpu_power) if each is not None]
        return sum(known) if known else None

    @property
    def kwh(self) -> float | None:
        """Return the known energy of the period in kilowatt-hours; None if no power is known."""
        return None if self.watts is None else self.watts * self.seconds / _JOULES_PER_KWH


MEANS = ("gpu", "cpu", "power", "cpu_power")
LARGEST = ("memory", "gpu_memory", "device_memory", "device_total", "temperature")
QUANTITIES = (*MEANS, *LARGEST)


class DeliveredUse(Record):
    """Use of one rank's slot in some period, as a launcher delivers it.

    `number` is 0 for the newest sample; other numbers belong to the periods of the curve over time.
    """

    rank: Annotated[int, Field(ge=0, lt=2**31)]
    node: str = Field("", max_length=300)
    device: str = Field("", max_length=300)  # name of the GPU; "": the slot is a share of the CPU
    number: Annotated[int, Field(ge=0, le=4096)] = LATEST
    use: SlotUse = SlotUse()


class RankUse(Record):
    """Use of one rank's slot over all attempts of the trial: the newest sample, the whole time, and a curve."""

    rank: int
    node: str = ""
    device: str = ""
    latest: SlotUse | None = None  # newest sample; None once the training has ended
    whole: SlotUse = SlotUse()
    curve: tuple[SlotUse, ...] = ()


class Utilisation(Record):
    """Use of the slots of a trial by rank, or of all trials of a search together."""

    trial: int | None = None  # None: all trials of a search, without ranks
    live: bool = False  # the training is running
    latest: SlotUse | None = None  # newest samples of all ranks: `gpu` is their mean, bytes and watts are their sums
    whole: SlotUse = SlotUse()  # means over the measured time of all slots; `seconds` is that time
    ranks: tuple[RankUse, ...] = ()


class StoredUse(NamedTuple):
    """Stored use of one slot, with the trial and the attempt that held it."""

    experiment: int
    trial: int
    attempt: int
    slot: DeliveredUse


def merged(uses: Sequence[SlotUse]) -> SlotUse:
    """Merge the uses of one slot in several periods, given in order of time, into one record.

    Rates are means weighted by the periods' seconds (unknown values are left out); bytes and temperature are maxima.

    Examples
    --------
    >>> merged([SlotUse(seconds=10, gpu=0.2, memory=5), SlotUse(seconds=30, gpu=0.6), SlotUse(seconds=5)]).gpu
    0.5
    """
    fields = {name: _mean([(getattr(each, name), each.seconds) for each in uses]) for name in MEANS}
    fields |= {name: _largest(getattr(each, name) for each in uses) for name in LARGEST}
    return SlotUse(
        at=max((each.at for each in uses), default=0.0), seconds=sum(each.seconds for each in uses), **fields
    )


def together(uses: Sequence[SlotUse]) -> SlotUse:
    """Return the use of several slots at one time: the mean of `gpu`, the hottest GPU, and sums of all other values."""
    fields = {name: _sum(getattr(each, name) for each in uses) for name in QUANTITIES}
    fields["gpu"] = _mean([(each.gpu, 1.0) for each in uses])
    fields["temperature"] = _largest(each.temperature for each in uses)
    last = max(uses, key=lambda each: each.at, default=SlotUse())
    return SlotUse(at=last.at, seconds=last.seconds, **fields)


def thinned(curve: Sequence[SlotUse], most: int) -> tuple[SlotUse, ...]:
    """Return a curve of use with at most `most` periods, by merging neighbouring ones."""
    if most <= 0:
        return ()
    each = -(-len(curve) // most)
    return tuple(merged(curve[first : first + each]) for first in range(0, len(curve), each)) if each > 1 else (*curve,)


def _mean(weighted: Iterable[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None and weight > 0]
    whole = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / whole if known else None


def _largest(values: Iterable[float | None]) -> float | None:
    return max((each for each in values if each is not None), default=None)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) if known else None
