"""Detect a loss that jumps and stays high, as in a training that diverges while its loss is still finite."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

WINDOW = 50  # number of earlier reports that a loss is compared with
LEAST = 20  # minimum of these before a jump is detected
IN_A_ROW = 3  # reports; a single hard batch is no divergence
SPREADS = 10.0  # above the median, in robust standard deviations (Huber 1981: 1.4826 x the median deviation)
MOST = 3  # limit of notes per loss


class LossSpikes:
    """Detector of jumps in the losses of one attempt; losses of different names are followed separately."""

    def __init__(self) -> None:
        self._losses: dict[str, _Loss] = {}
        self._begins: list[int] = []  # steps after which another training begins

    def begin(self, step: int) -> None:
        """Forget the losses reported until this step: the next ones are of another training, as in a second loop.

        Reports of earlier steps may still follow.
        """
        self._begins.append(step)

    def take(self, step: int, metrics: Mapping[str, float]) -> str:
        """Record the losses of a training report; return a note for the user if one jumped and stays high, else "".

        Examples
        --------
        >>> spikes = LossSpikes()
        >>> losses = [0.5 + 0.01 * (step % 5) for step in range(30)] + [4.0, 4.5, 5.0]
        >>> [text for step, loss in enumerate(losses) if (text := spikes.take(step, {"loss": loss}))]
        ['loss jumped at step 30: 4 after 0.52, the median of the 30 reports before, and it stays up at 5. A lower \
learning rate or --clip 1.0 may help']
        """
        while self._begins and step > self._begins[0]:
            self._begins.pop(0)
            self._losses.clear()
        texts = (
            self._losses.setdefault(name, _Loss(name)).take(step, value)
            for name, value in metrics.items()
            if name.lower().endswith("loss") and math.isfinite(value)  # nan is handled by --on-nan
        )
        return "; ".join(filter(None, texts))


@dataclass
class _Loss:
    name: str
    usual: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    high: list[tuple[int, float]] = field(default_factory=list)  # the newest consecutive reports that were too high
    notes: int = 0

    def take(self, step: int, value: float) -> str:
        if not self._is_high(value):
            self.usual.append(value)
            self.high = []
            return ""
        self.high.append((step, value))
        if len(self.high) == WINDOW:  # a level that lasts becomes the usual one, from which later jumps are measured
            self.usual.extend(value for _, value in self.high)
            self.high = []
        if len(self.high) != IN_A_ROW or self.notes == MOST:
            return ""
        self.notes += 1
        first, jumped = self.high[0]
        return (
            f"{self.name} jumped at step {first}: {jumped:.4g} after {statistics.median(self.usual):.4g}, the median "
            f"of the {len(self.usual)} reports before, and it stays up at {value:.4g}. A lower learning rate or "
            "--clip 1.0 may help"
        )

    def _is_high(self, value: float) -> bool:
        """Return True if `value` is far above the loss values reported recently."""
        if len(self.usual) < LEAST:
            return False
        median = statistics.median(self.usual)
        deviation = 1.4826 * statistics.median(abs(each - median) for each in self.usual)
        return value - median > max(SPREADS * deviation, abs(median))
