"""Define the interface of a searcher: it decides which trial trains next, and how far.

A searcher reads no clock, does no I/O and draws only from generators that are seeded by (seed, trial). A trial's
target is a unit (epoch or step); R, the last, is a whole training. Values are as reported; a searcher turns
`metric:max` round inside. Trials are numbered from 1; numbers below 1 are results of other searches.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kernel_backend.model.record import Value
from kernel_backend.model.search.records import Complete, Continue, Create, Pause, Prune, Reason, Resume


class Searcher(Protocol):
    """Decide which trial trains next, and how far: the interface of a search method.

    The service stores each call and each decision, and replays them after a restart. The same calls must therefore lead
    to the same state: read no clock, do no I/O, and draw from `stream` alone. `sampled` makes a searcher that trains
    each trial to its end.

    Examples
    --------
    >>> from daylight.search import Parameter, Range, Searcher, Settings, Space, make
    >>> lr = Parameter(name="lr", domain=Range(low=1e-4, high=0.1, scale="log"))
    >>> searcher: Searcher = make(Settings(method="random", units=3, trials=2), Space(parameters=(lr,)))
    >>> decision = searcher.on_slot()
    >>> decision.trial, decision.until, searcher.wants()
    (1, 3, 1)
    >>> searcher.on_report(1, 3, 0.5).type
    'complete'
    """

    def wants(self) -> int:
        """Return how many more gangs the search could use now.

        Returns
        -------
        int
            Number of gangs, besides those that its trials hold.
        """

    def on_slot(self) -> Create | Resume | None:
        """Decide which trial gets a gang that was granted.

        Returns
        -------
        Create, Resume or None
            A new trial, or a paused one; None if there is nothing to train any more.
        """

    def granted(self, decision: Create | Resume) -> None:
        """Apply a decision that `on_slot` made earlier, to replay a log; nothing is decided anew.

        Parameters
        ----------
        decision : Create or Resume
            The decision that was stored.
        """

    def on_report(self, trial: int, unit: int, value: float) -> Continue | Pause | Prune | Complete:
        """Process a report of a trial, and decide what the trial does next.

        Before its target a trial continues to the same target. Of two reports of one unit the first counts.

        Parameters
        ----------
        trial : int
            Number of the trial.
        unit : int
            Unit (epoch or step) at whose end it reports.
        value : float
            The metric as reported; it may be NaN or infinite.

        Returns
        -------
        Continue, Pause, Prune or Complete
            What the trial does next.
        """

    def on_exit(self, trial: int, reason: Reason) -> None:
        """Process the end of a trial that no decision of the search has caused.

        Preemption and restarts are not reported.

        Parameters
        ----------
        trial : int
            Number of the trial.
        reason : {"failed", "invalid", "stopped", "pruned"}
            How it ended.
        """

    def told(self, trial: int, params: dict[str, Value]) -> None:
        """Record the hyperparameters that a trial really has.

        Parameters
        ----------
        trial : int
            Number of the trial; a result of another search has a number below 1, and becomes known by this call.
        params : dict of str to Any
            Hyperparameters by name.
        """

    def promote(self, trial: int) -> None:
        """Promote a trial: a paused one gets the next gang, one that trains continues beyond its target.

        Parameters
        ----------
        trial : int
            Number of the trial.

        Raises
        ------
        Conflict
            The trial has ended.
        """

    def extend(self, trials: int | None) -> None:
        """Set the total number of trials, and open the search again if it was closed.

        Parameters
        ----------
        trials : int or None
            Number of trials in all; None for no limit.

        Raises
        ------
        Conflict
            There are more trials already.
        """

    def close(self) -> None:
        """Close the search: it wants no more gangs.

        Trials that train are paused where they are, and resume first if the search is extended.
        """

    def over(self) -> bool:
        """Return whether the search has ended.

        Returns
        -------
        bool
            True if no trial trains, and none will be wanted.
        """


class Plan(NamedTuple):
    """Most that a search will train, for a dry run.

    Parameters
    ----------
    trials : int or None
        Number of trials at most; None if a budget or the method limits it.
    shortest : int
        Units of the trial that is trained least.
    reports : int
        Number of reports, of all trials, after which something may be decided; 0 if that is unknown.

    Examples
    --------
    >>> from daylight.search import Plan
    >>> Plan(trials=16, shortest=10, reports=16).shortest
    10
    """

    trials: int | None  # None: limited by a budget, or by the method
    shortest: int  # units of the trial that is trained least
    reports: int  # after which something may be decided, of all trials; 0: unknown
