"""Read how much time the ranks of this node spend on each part of their training steps."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.launch.times import Clocked
from kernel_backend.model.times import LOADERS, PARTS, RankTimes, Split

PERIOD_S = 2.0  # between deliveries
MINUTE_S = 60.0


class _Sample(NamedTuple):
    at: float  # monotonic
    steps: int
    seconds: tuple[float, ...]


class TimesReader:
    """Reader of the seconds that a node's ranks spend on each part of their steps: in total, and in the last minute.

    It is thread-safe.
    """

    def __init__(
        self, folder: AttemptFolder, nodes: Mapping[int, str], now: Callable[[], float] = time.monotonic
    ) -> None:
        """Set up the reader; `nodes` has the name of the node of each rank, by rank number."""
        self._folder, self._nodes, self._now = folder, nodes, now
        self._samples: dict[int, deque[_Sample]] = {rank: deque() for rank in nodes}
        self._next = now() + PERIOD_S
        self._ended = False
        self._lock = threading.Lock()

    def due(self) -> tuple[RankTimes, ...]:
        """Return the times of all ranks if two seconds have passed since the last delivery, else ()."""
        return self.read() if self._now() >= self._next else ()

    def delivered(self) -> None:
        """Record that the service has received the times that `due` returned; the next ones are due in two seconds."""
        if self._now() >= self._next:
            self._next = self._now() + PERIOD_S

    def end(self) -> tuple[RankTimes, ...]:
        """Return the final times of all ranks, after the ranks have ended."""
        self._ended = True
        return self.read()

    def read(self) -> tuple[RankTimes, ...]:
        """Return the newest times of each rank that has completed at least two steps."""
        with self._lock:
            found = ((rank, self._folder.times(rank)) for rank in self._nodes)
            return tuple(self._times(rank, clocked) for rank, clocked in found if clocked is not None)

    def _times(self, rank: int, clocked: Clocked) -> RankTimes:
        now, running = self._now(), clocked.running and not self._ended
        seconds = clocked.until(now) if running else clocked.seconds
        newest = _Sample(now, clocked.steps, seconds)
        samples = self._samples[rank]
        samples.append(newest)
        while len(samples) > 1 and samples[1].at <= now - MINUTE_S:
            samples.popleft()
        zero = _Sample(now, 0, (0.0,) * len(PARTS))
        earlier = samples[0] if now - samples[0].at >= MINUTE_S else zero
        return RankTimes(
            rank=rank,
            node=self._nodes[rank][:300],
            now=PARTS[clocked.part] if running else None,
            whole=_split(newest, zero),
            minute=_split(newest, earlier),
            loader=LOADERS[clocked.loader],
            workers=clocked.workers,
            operations=clocked.operations / max(1, clocked.steps),
            written_bytes=clocked.written_bytes,
            written_s=clocked.written_s,
        )


def _split(newest: _Sample, earlier: _Sample) -> Split:
    """Return the number of steps between two samples, and the seconds spent in them on each part of a step.

    Parts that took no time are left out.
    """
    pairs = zip(PARTS, newest.seconds, earlier.seconds, strict=True)
    parts = {part: round(after - before, 4) for part, after, before in pairs if after - before >= 5e-5}
    return Split(steps=max(0, newest.steps - earlier.steps), parts=parts)
