"""Sample the use of a node's slots in a thread of its own, until another thread delivers it to the service."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kernel_backend.devices import visible_ids
from kernel_backend.launch.utilisation import gpus
from kernel_backend.launch.utilisation.curve import Curve
from kernel_backend.launch.utilisation.processes import PackageMeter, ProcessMeter, trees
from kernel_backend.launch.utilisation.readings import Meter, Reading, combined, use_between
from kernel_backend.model.launch.utilisation import DeliveredUse, SlotUse
from kernel_backend.model.resources import Share

PERIOD_S = 5.0  # between samples
FIRST_S = 0.25  # between the first two, from which on it doubles up to PERIOD_S: short trainings are measured, too
MOST_SHARE = 0.002  # of a core, which sampling takes at most: on a node with many processes samples are rarer
MOST_WAITING = 2048  # finished periods that wait for delivery; older ones are then dropped
AT_ONCE = 1024  # finished periods in one delivery
ENOUGH_S = 2.0  # waiting for the thread at the end: a driver may hang
_log = logging.getLogger(__name__)


class _Sample(NamedTuple):
    at: float  # monotonic
    reading: Reading


class SlotMeters(NamedTuple):
    """Meters to use on a node, and the product name of each rank's device, by rank."""

    meters: Sequence[Meter]
    devices: Mapping[int, str] = {}


class UseReader:
    """Reader of how each rank has used its slot (GPU, CPU, memory, ...) since the previous sample; not thread-safe."""

    def __init__(self, node: str, meters: SlotMeters, now: Callable[[], float] = time.monotonic) -> None:
        self._node, self._meters, self._now = node, meters, now
        self._before: dict[int, _Sample] = {}
        self._curves: dict[int, Curve] = {}

    def sample(self, pids: Mapping[int, int]) -> list[DeliveredUse]:
        """Take a sample of each running rank; `pids` has the process id of each rank, by rank number.

        Returns each rank's use since its previous sample, and its use in the longer period that is now complete, if
        any.
        """
        found = trees(pids)
        readings = [each.read(found) for each in self._meters.meters]
        at, wall = self._now(), time.time()
        used: list[DeliveredUse] = []
        for rank in found:
            now = _Sample(at, combined(each[rank] for each in readings))
            before = self._before.get(rank)
            self._before[rank] = now
            if before is not None and at > before.at:
                used += self._add(rank, use_between(before.reading, now.reading, at - before.at, wall))
        return used

    def end(self) -> list[DeliveredUse]:
        """Return the use in the last period of each rank, which was not complete when the ranks ended."""
        return [self._slot(rank, *ended) for rank, curve in self._curves.items() if (ended := curve.end())]

    def _add(self, rank: int, use: SlotUse) -> list[DeliveredUse]:
        ended = self._curves.setdefault(rank, Curve()).add(use)
        return [self._slot(rank, 0, use), *([self._slot(rank, *ended)] if ended else [])]

    def _slot(self, rank: int, number: int, use: SlotUse) -> DeliveredUse:
        device = self._meters.devices.get(rank, "")[:300]
        return DeliveredUse(rank=rank, node=self._node[:300], device=device, number=number, use=use)


class UseSampler(threading.Thread):
    """Thread that samples the use of a node's slots.

    It is a thread of its own so that a GPU driver that hangs delays neither heartbeats nor ranks.
    """

    def __init__(self, share: Share, ranks: Sequence[int], pids: Callable[[], Mapping[int, int]]) -> None:
        """Set up the thread; `share` has the slots of this node, and `ranks` the numbers of the ranks there.

        `pids` returns the process id of each rank, by rank number; {} until all ranks exist.
        """
        super().__init__(name="utilisation", daemon=True)
        self._share, self._ranks, self._pids = share, ranks, pids
        self._lock, self._over = threading.Lock(), threading.Event()
        self._latest: dict[int, DeliveredUse] = {}
        self._ended: deque[DeliveredUse] = deque(maxlen=MOST_WAITING)

    def run(self) -> None:
        """Take samples until `finish` is called."""
        try:
            with contextlib.ExitStack() as until:
                self._sample(UseReader(self._share.node, node_meters(self._share, self._ranks, until)))
        except Exception:  # the use of the slots is lost, and nothing else
            _log.exception("the use of the slots is not measured any more")

    def due(self, periods: int = AT_ONCE) -> tuple[DeliveredUse, ...]:
        """Return the use to deliver next: the newest sample of each rank, and at most `periods` completed periods."""
        with self._lock:
            return (*self._latest.values(), *[*self._ended][:periods])

    def delivered(self, slots: Sequence[DeliveredUse]) -> None:
        """Forget the samples and periods in `slots`, which the service has received; newer samples are kept."""
        with self._lock:
            for each in slots:
                if self._latest.get(each.rank) == each:
                    del self._latest[each.rank]
                elif self._ended and self._ended[0] == each:
                    self._ended.popleft()

    def finish(self) -> tuple[DeliveredUse, ...]:
        """End the thread; return all use that was not delivered yet."""
        self._over.set()
        self.join(ENOUGH_S)
        return self.due(MOST_WAITING)

    def _sample(self, reader: UseReader) -> None:
        pause = FIRST_S  # until the ranks exist, too
        while not self._over.wait(pause):
            begun = time.thread_time()
            if pids := self._pids():
                self._put(reader.sample(pids))
                cost = time.thread_time() - begun
                pause = 2 * pause if 2 * pause < PERIOD_S else max(PERIOD_S, cost / MOST_SHARE)
        self._put(reader.end())

    def _put(self, used: Sequence[DeliveredUse]) -> None:
        with self._lock:
            self._ended.extend(each for each in used if each.number)
            self._latest |= {each.rank: each for each in used if not each.number}


def node_meters(share: Share, ranks: Sequence[int], until: contextlib.ExitStack) -> SlotMeters:
    """Return the meters that work on this node: for processes, for processors, and for GPUs.

    The meter of GPUs is included if slots are GPUs and NVML is installed; NVML is shut down when `until` is closed.
    """
    own: list[Meter] = [ProcessMeter(), PackageMeter()]
    nvml = gpus.load() if share.kind == "cuda" else None
    if nvml is None:
        return SlotMeters(own)
    meter = gpus.GpuMeter(nvml, dict(zip(ranks, visible_ids(share.kind, share.slots), strict=False)))
    until.callback(meter.close)
    return SlotMeters([*own, meter], meter.names())
