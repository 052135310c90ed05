"""Estimate run lengths from past runs: quartiles for expected waits, and the probability that a run ends in time."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from statistics import quantiles
from typing import NamedTuple

from kernel_backend.model.states import Outcome

MOST = 100  # newest runs kept per user
MOST_WHOLE = 500  # newest completed runs kept per user and number of slots
TELLING = (Outcome.OK, Outcome.RELEASED)  # failures do not show how long a training takes


class Lengths(NamedTuple):
    """Quartiles of a user's run lengths, in seconds.

    A quarter of the runs are shorter than `short`, and a quarter longer than `long`.
    """

    short: float
    median: float
    long: float


class Sample:
    """Sorted lengths of the newest completed runs, in seconds."""

    def __init__(self) -> None:
        self._newest: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, seconds: float) -> None:
        """Add the length of a run, and drop the oldest if there are too many."""
        self._newest.append(seconds)
        insort(self._sorted, seconds)
        if len(self._newest) > MOST_WHOLE:
            del self._sorted[bisect_right(self._sorted, self._newest.popleft()) - 1]

    def longer(self, than: float) -> int:
        """Return how many runs of the sample were longer than `than` seconds."""
        return len(self._sorted) - bisect_right(self._sorted, than)


class PastLengths(Mapping[str, Lengths]):
    """Quartiles of past run lengths by owner, from runs that completed or were preempted."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MOST))
        self._known: dict[str, Lengths] = {}
        self._whole: defaultdict[tuple[str, int], Sample] = defaultdict(Sample)

    def add(self, owner: str, slots: int, begun: float, ended: float | None, outcome: Outcome | None) -> None:
        """Add the run of an attempt from `begun` to `ended` (None: it still runs), in seconds since the epoch.

        Attempts that failed or still run are ignored.
        """
        if ended is None or outcome not in TELLING:
            return
        self._seconds[owner].append(max(0.0, ended - begun))
        self._known.pop(owner, None)
        if outcome is Outcome.OK:  # a preempted run would have taken longer
            self._whole[owner, slots].add(max(0.0, ended - begun))

    def chance_to_last(self, owner: str, slots: int, elapsed: float, seconds: float, others: int = 0) -> float:
        """Return the probability that a run that has lasted `elapsed` seconds lasts `seconds` more; 1 without data.

        `others` is the number of running gangs of the same user and size that have already lasted longer than `elapsed`
        + `seconds`. One more such gang is always assumed, so that a small number of past runs has little weight.
        """
        sample = self._whole.get((owner, slots), _NOTHING)
        longer = sample.longer(elapsed + seconds) + others
        return (longer + 1) / (sample.longer(elapsed) + others + 1)

    def chance_to_end(self, owner: str, slots: int, elapsed: float, seconds: float) -> float:
        """Return the probability that a run that has lasted `elapsed` seconds ends within `seconds`; 1 without data."""
        sample = self._whole.get((owner, slots), _NOTHING)
        as_long = sample.longer(elapsed)
        return (as_long - sample.longer(elapsed + seconds) + 1) / (as_long + 1)

    def __getitem__(self, owner: str) -> Lengths:
        known = self._known.get(owner)
        if known is None:
            if owner not in self._seconds:
                raise KeyError(owner)
            seconds = list(self._seconds[owner])
            known = Lengths(*quantiles(seconds if len(seconds) > 1 else 2 * seconds, n=4, method="inclusive"))
            self._known[owner] = known
        return known

    def __iter__(self) -> Iterator[str]:
        return iter(self._seconds)

    def __len__(self) -> int:
        return len(self._seconds)


_NOTHING = Sample()
