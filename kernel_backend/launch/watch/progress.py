"""Follow the progress of ranks by their heartbeats, and detect hangs."""

from __future__ import annotations

import linecache
import time
from collections.abc import Callable, Collection

from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.launch.watch.hangs import RankState, hang, overdue
from kernel_backend.model.launch.progress import BEGINNING, Tick, limit
from kernel_backend.model.trial import Failure

AWAKE_S = 1.0  # if polls are further apart, the launcher was stopped, and perhaps its ranks as well
ANSWER_S = 2.0  # time for ranks to write their stacks
QUIET_S = 0.2  # a rank that has written nothing for this long has finished writing


class Watch:
    """Measurement of how long each rank of a node has made no progress; `look` must be called at short intervals.

    Time in which it is not called does not count: if the machine slept, or all processes were stopped, no rank hung.
    """

    def __init__(self, folder: AttemptFolder, ranks: Collection[int], hang_timeout: float) -> None:
        self._folder, self._timeout = folder, hang_timeout
        self._ticks: dict[int, Tick | None] = dict.fromkeys(ranks, BEGINNING)
        self._idle = dict.fromkeys(ranks, 0.0)
        self._looked: float | None = None

    def look(self, now: float) -> None:
        """Read the newest heartbeat of each rank; a rank whose heartbeat has changed has made progress.

        `now` is the value of `time.monotonic()`.
        """
        passed = min(now - self._looked, AWAKE_S) if self._looked is not None else 0.0
        self._looked = now
        ticks = {rank: self._folder.tick(rank) for rank in self._ticks}
        moved = [rank for rank, tick in ticks.items() if tick != self._ticks[rank]]
        # When a rank leaves a slow phase, those that waited for it follow a little later.
        anew = ticks if any(self._slow(self._ticks[rank]) for rank in moved) else moved
        self._ticks = ticks
        self._idle = {rank: 0.0 if rank in anew else idle + passed for rank, idle in self._idle.items()}

    def states(self, alive: Collection[int]) -> dict[int, RankState]:
        """Return the state of each rank in `alive`, by rank; ranks whose heartbeat cannot be read are left out."""
        return {rank: RankState(tick, self._idle[rank]) for rank, tick in self._ticks.items() if rank in alive and tick}

    def overdue(self, alive: Collection[int]) -> bool:
        """Return True if one of the ranks in `alive` has made no progress for longer than is allowed."""
        return overdue(self.states(alive), self._timeout)

    def steps(self) -> dict[int, int | None]:
        """Return the step at which each rank is, or was when it ended, by rank; None if it is unknown."""
        ticks = {rank: self._folder.tick(rank) for rank in self._ticks}
        return {rank: tick.about if tick else None for rank, tick in ticks.items()}

    def through(self) -> bool:
        """Return True if every rank, whether it runs or has exited, has completed all of its steps."""
        ticks = [self._folder.tick(rank) for rank in self._ticks]
        return all(tick is not None and tick.phase == "finishing" for tick in ticks)

    def preparing(self) -> tuple[int, ...]:
        """Return the ranks whose last heartbeat was in the phase "preparing", that of the user's function `prepare`.

        They run that function, wait until another rank has run it, or have exited in it.
        """
        ticks = {rank: self._folder.tick(rank) for rank in self._ticks}
        return tuple(rank for rank, tick in ticks.items() if tick is not None and tick.phase == "preparing")

    def describe(self, alive: Collection[int], show_stacks: Callable[[Collection[int]], None]) -> Failure:
        """Return the failure record of a gang that hangs, with the stack traces of the ranks in `alive`.

        `show_stacks` is called with rank numbers, and makes these ranks write their stack traces.
        """
        states = self.states(alive)
        # A rank that has not written a tick yet is not signalled: it has no handler, and the signal would kill it.
        able = [rank for rank, state in states.items() if state.tick.number]
        before = {rank: len(self._folder.stacks(rank)) for rank in able}
        show_stacks(able)
        self._wait_for_stacks(before)
        for rank in able:
            written = self._folder.stacks(rank)
            if len(written) > before[rank]:
                states[rank] = states[rank]._replace(stacks=written)
        return hang(states, self._folder.sources(), linecache.getline, time.time())

    def _slow(self, tick: Tick | None) -> bool:
        return tick is not None and limit(tick.phase, self._timeout) > limit("step", self._timeout)

    def _wait_for_stacks(self, before: dict[int, int]) -> None:
        deadline = time.monotonic() + ANSWER_S
        last, quiet = before, 0.0
        while time.monotonic() < deadline and quiet < QUIET_S:
            time.sleep(QUIET_S / 4)
            written = {rank: len(self._folder.stacks(rank)) for rank in before}
            everyone = all(written[rank] > before[rank] for rank in before)
            quiet = quiet + QUIET_S / 4 if everyone and written == last else 0.0
            last = written
