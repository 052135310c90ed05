"""Measure the parts of a training step by CUDA events, as the host runs ahead of its GPU.

The wall clock would add the GPU's work to whichever later part waits for it. Here an event is recorded at each change
of the part. The time between two events is the time that the GPU took from one to the next, including its waits for the
host. A wait for data that overlaps with earlier work of the GPU therefore counts as that work, and the parts still sum
to the wall time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch


class CudaTimeline:
    """Clock that measures the parts of a step by CUDA events.

    An event is recorded on the stream that is current when a part begins.
    """

    def __init__(self) -> None:
        self._pending: deque[tuple[torch.cuda.Event, int]] = deque()
        self._free: list[torch.cuda.Event] = []

    def mark(self, part: int) -> None:
        """Record a CUDA event as the start of part number `part`; do nothing while a CUDA graph is captured."""
        if torch.cuda.is_current_stream_capturing():
            return
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._pending.append((event, part))

    def passed(self) -> Iterator[tuple[int, float]]:
        """Yield (part number, seconds) of each part of a step that the GPU has completed since the last call.

        The part number is that given to `mark`; the seconds are those that the GPU took from the start of the part to
        the start of the next one. Does not wait for the GPU. Yields nothing while a CUDA graph is captured.
        """
        if torch.cuda.is_current_stream_capturing():  # a query would end the capture
            return
        while len(self._pending) > 1 and self._pending[1][0].query():  # type: ignore[no-untyped-call]
            event, part = self._pending.popleft()
            yield part, max(0.0, event.elapsed_time(self._pending[0][0]) / 1000)
            self._free.append(event)

    @property
    def oldest(self) -> int:
        """Return the part number, as given to `mark`, of the earliest part that `passed` has not yielded yet."""
        return self._pending[0][1]
