"""Read how this node's ranks spend the time of their steps, and send that to the service every few seconds."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.service_address import connection
from kernel_backend.launch.trace import TraceRelay
from kernel_backend.launch.utilisation.sampler import UseSampler
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.times import Clocked
from kernel_backend.model.reports import Delivery
from kernel_backend.model.times import LOADERS, PARTS, RankTimes, Split

PERIOD_S = 2.0  # between deliveries
MINUTE_S = 60.0
LAST_WORDS_S = 5.0  # time for the delivery of the final times
_log = logging.getLogger(__name__)


class _Sample(NamedTuple):
    at: float  # monotonic
    steps: int
    seconds: tuple[float, ...]


class TimesReader:
    """Reader of the seconds that a node's ranks spend on each part of their steps, with samples of the last minute.

    It is not thread-safe.
    """

    def __init__(
        self, folder: AttemptFolder, nodes: Mapping[int, str], now: Callable[[], float] = time.monotonic
    ) -> None:
        """Set up the reader; `nodes` has the name of each rank's node."""
        self._folder, self._nodes, self._now = folder, nodes, now
        self._samples: dict[int, deque[_Sample]] = {rank: deque() for rank in nodes}
        self._next = now() + PERIOD_S
        self._ended, self._told = False, False
        self._due_final = False  # the times returned last by `due` are final

    def due(self) -> tuple[RankTimes, ...]:
        """Return the times of all ranks if a delivery is due (every two seconds and at the end), else ()."""
        self._due_final = self._ended  # before the read: the ranks may end while these times are delivered
        if self._now() < self._next and not self.final():
            return ()
        return self.read()

    def delivered(self) -> None:
        """Record that the service has received what `due` returned."""
        if self._now() >= self._next:
            self._next = self._now() + PERIOD_S
        self._told = self._due_final

    def end(self) -> None:
        """Record that the ranks have ended, so that the times no longer change."""
        self._ended = True

    def final(self) -> bool:
        """Return True if the ranks have ended and the service has not received their final times."""
        return self._ended and not self._told and bool(self.read())

    def read(self) -> tuple[RankTimes, ...]:
        """Return the newest times of each rank that has completed at least two steps."""
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
    """Return the seconds that each part of a step took between two samples, without parts that took no time."""
    pairs = zip(PARTS, newest.seconds, earlier.seconds, strict=True)
    parts = {part: round(after - before, 4) for part, after, before in pairs if after - before >= 5e-5}
    return Split(steps=max(0, newest.steps - earlier.steps), parts=parts)


class TimesUploader(threading.Thread):
    """Thread that delivers times and use of a node without rank 0; on node 0 the spool uploader delivers them.

    It passes requests for traces in the service's answers to the ranks, by `instruct`.
    """

    def __init__(
        self,
        folder: AttemptFolder,
        job: LaunchSpec,
        instruct: Callable[[str], None],
        times: TimesReader,
        use: UseSampler,
    ) -> None:
        super().__init__(name="times uploader", daemon=True)
        self._traces = TraceRelay(instruct)
        self._folder, self._job, self._times, self._use = folder, job, times, use
        self._over = threading.Event()

    def finish(self) -> None:
        """Send the final times, waiting a few seconds at most for the service, and end the thread."""
        self._over.set()
        self.join(LAST_WORDS_S)

    def run(self) -> None:
        """Send times until `finish`; if the service cannot be reached, only the newest times are sent later."""
        token = self._folder.token()
        client = connection(self._job, token)
        while True:
            over = self._over.wait(PERIOD_S)
            try:
                delivery = Delivery(times=self._times.read(), use=self._use.due())
                self._traces.take(client.deliver(self._job.id, token, delivery))
                self._use.delivered(delivery.use)
            except Exception as error:  # an error of this thread must not end the ranks
                _log.info("the service does not take times now: %s", error)
            if over:
                return
