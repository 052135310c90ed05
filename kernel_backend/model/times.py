"""Define the parts into which a training's time is split, as each rank measures them and the service returns them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import Field, FiniteFloat

from kernel_backend.model.record import Record

# `input` is the wait for files that are still fetched from a store, `data` that for batches of files that are here.
# `stall` is all other time: reports, callbacks, waiting for the service or for the target of a search.
Part = Literal[
    "data",
    "input",
    "transfer",
    "forward",
    "backward",
    "communication",
    "optimizer",
    "checkpoint",
    "validation",
    "stall",
]
PARTS: tuple[Part, ...] = get_args(Part)
LABELS: Mapping[Part, str] = {
    "data": "waiting for data",
    "input": "waiting for input",
    "transfer": "copy to the device",
    "forward": "forward",
    "backward": "backward",
    "communication": "communication",
    "optimizer": "optimizer",
    "checkpoint": "checkpoint",
    "validation": "validation",
    "stall": "other",
}

# Where batches come from: data with an index or a stream, read by Daylight; or the DataLoader of a user's own loop.
Loader = Literal["none", "indexed", "stream", "own"]
LOADERS: tuple[Loader, ...] = get_args(Loader)

MOST_RANKS = 4096  # in one delivery
_Seconds = Annotated[FiniteFloat, Field(ge=0)]
_Count = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Split(Record):
    """Seconds that a rank spent in each part of its work, and the number of steps in that time."""

    steps: _Count = 0
    parts: dict[Part, _Seconds] = {}

    @property
    def seconds(self) -> float:
        """Return the seconds of all parts together, which is the measured wall time."""
        return sum(self.parts.values())

    def share(self, *parts: Part) -> float:
        """Return which fraction of the time these parts take together; 0 if nothing was measured."""
        seconds = self.seconds
        return sum(self.parts.get(part, 0.0) for part in parts) / seconds if seconds else 0.0


class RankTimes(Record):
    """Time that one rank of an attempt spent in each part of its work, measured from its second step on."""

    rank: Annotated[int, Field(ge=0, lt=2**31)]
    node: str = Field("", max_length=300)
    now: Part | None = None  # the current part; None once the rank has ended
    whole: Split = Split()
    minute: Split = Split()  # the last 60 seconds
    loader: Loader = "none"
    workers: _Count = 0  # loader processes
    operations: _Seconds = 0.0  # of the autograd graph, per step
    written_bytes: _Seconds = 0.0  # of the checkpoints of this attempt
    written_s: _Seconds = 0.0  # time to write them


class Times(Record):
    """Time that a trial, or all trials of a search, spent in each part of the work, and the main cause of delay.

    For a single trial, `ranks` has the times of each rank.
    """

    trial: int | None  # None: all trials of a search, without ranks
    live: bool  # the training is running
    whole: Split  # summed over ranks and attempts
    minute: Split  # the last 60 seconds, summed over ranks
    ranks: tuple[RankTimes, ...] = ()  # `whole` of each is the sum over its attempts
    sentence: str = ""  # the cause that takes most time, and the way out; empty if nothing stands out


class AttemptTimes(NamedTuple):
    """Number of an attempt, with the seconds that one of its ranks last reported for each part of its work."""

    attempt: int
    times: RankTimes


def added(splits: Iterable[Split]) -> Split:
    """Return the sums of steps and of the seconds of each part over several splits.

    Examples
    --------
    >>> added([Split(steps=1, parts={"data": 1.0}), Split(steps=2, parts={"data": 2.0})]).parts
    {'data': 3.0}
    """
    steps, parts = 0, dict[Part, float]()
    for each in splits:
        steps += each.steps
        for part, seconds in each.parts.items():
            parts[part] = parts.get(part, 0.0) + seconds
    return Split(steps=steps, parts=parts)
