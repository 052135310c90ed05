"""How long a user's attempts took: what an estimate of a wait is made of."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from statistics import quantiles

from kernel_backend.model.states import Outcome
from kernel_backend.scheduler.forecast import Lengths

MOST = 100  # of each user: the newest
TELLING = (Outcome.OK, Outcome.RELEASED)  # crashes say nothing of how long a training takes


class PastLengths(Mapping[str, Lengths]):
    """Quartiles by owner of those that came to an end of their own, or stepped aside."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MOST))
        self._known: dict[str, Lengths] = {}

    def add(self, owner: str, begun: float, ended: float | None, outcome: Outcome | None) -> None:
        """Take in an attempt; one that goes on, or has crashed, changes nothing."""
        if ended is not None and outcome in TELLING:
            self._seconds[owner].append(max(0.0, ended - begun))
            self._known.pop(owner, None)

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
