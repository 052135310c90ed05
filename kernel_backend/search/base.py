"""What a searcher is: it is told what happens to trials and answers which trains next, and how far.

A searcher reads no clock, does no I/O and draws only from generators that are seeded by (seed, ask). A trial's
target is a unit (epoch or step); R, the last, is a whole training. Values are as reported; `metric:max` is turned
round inside. Trials are numbered from 1; numbers below 1 are results of other searches.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kernel_backend.model.record import Value
from kernel_backend.model.search.records import Complete, Continue, Create, Pause, Prune, Reason, Resume


class Searcher(Protocol):
    """One search. Whatever it is asked twice about the same thing, the first word stands."""

    def wants(self) -> int:
        """How many gangs it could use now, besides those that its trials hold."""

    def on_vacancy(self) -> Create | Resume | None:
        """A gang has been granted: which trial gets it? None where there is nothing to train any more."""

    def granted(self, decision: Create | Resume) -> None:
        """Take a decision that `on_vacancy` made before, without making it again: how a log is replayed."""

    def on_report(self, trial: int, unit: int, value: float) -> Continue | Pause | Prune | Complete:
        """A trial reports the metric at the end of a unit; what it does next.

        Before its target it is told to continue up to the same target.
        """

    def on_exit(self, trial: int, reason: Reason) -> None:
        """A trial has ended otherwise than by a decision; preemption and restarts are not told."""

    def told(self, trial: int, params: dict[str, Value]) -> None:
        """What hyperparameters a trial really has; one below 1 becomes known by this."""

    def promote(self, trial: int) -> None:
        """Let a paused trial have the next vacancy, and one that trains go on; raises Conflict where it has ended."""

    def extend(self, trials: int | None) -> None:
        """Let there be so many trials in all, and open it again if it was closed.

        Raises Conflict where that is fewer than there are.
        """

    def close(self) -> None:
        """Want nothing more; trials that train are paused where they are, and go on first if it is extended."""

    def over(self) -> bool:
        """Whether nothing is left to do: no trial trains, and none will be wanted."""


class Plan(NamedTuple):
    """What is known of a search before it runs, for a dry run."""

    trials: int | None  # None: as many as a budget allows, or the method likes
    shortest: int  # units of the trial that is trained least
    reports: int  # at which something may be decided, of all trials; 0: nobody can say
