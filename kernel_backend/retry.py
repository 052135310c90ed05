"""Define retry policies: the pause before each retry, and when to give up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

Errors = type[Exception] | tuple[type[Exception], ...]
_T = TypeVar("_T")


@dataclass(frozen=True)
class RetryPolicy:
    """Retry policy: pauses, maximum number of tries, and time limit.

    `pauses` are the seconds before the second try, the third and so on; the last one repeats. `tries` includes the
    first try. No further try starts after `limit` seconds.
    """

    pauses: tuple[float, ...]
    tries: float = math.inf
    limit: float = math.inf

    def pause(self, failures: int) -> float:
        """Return the seconds to wait before the next try, after `failures` failures in a row; 0 if there were none."""
        return self.pauses[min(failures, len(self.pauses)) - 1] if failures else 0.0

    def waits(self) -> Iterator[float]:
        """Yield the pause in seconds before each retry, until tries or time are used up.

        The time limit starts with this call.
        """
        return self._waits(time.monotonic() + self.limit)

    def _waits(self, deadline: float) -> Iterator[float]:
        failures = 1
        while failures < self.tries and time.monotonic() < deadline:
            yield self.pause(failures)
            failures += 1

    def call(self, act: Callable[[], _T], *, on: Errors = Exception, unless: Errors = ()) -> _T:
        """Return the result of `act`, retried after errors in `on` but not in `unless`; raise the last error."""
        waits = self.waits()
        while True:
            try:
                return act()
            except unless:
                raise
            except on:
                pause = next(waits, None)
                if pause is None:
                    raise
            time.sleep(pause)


def exponential(first: float, longest: float, factor: float = 2.0) -> tuple[float, ...]:
    """Return pauses in seconds that grow by `factor` from `first` to `longest`."""
    steps = math.ceil(math.log(longest / first, factor))
    return (*(first * factor**step for step in range(steps)), longest)
