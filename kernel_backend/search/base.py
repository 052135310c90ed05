"""Define the interface of a searcher, which decides which trial trains next, and up to which unit.

A searcher reads no clock, does no I/O, and draws only from generators seeded by (seed, trial). A trial's target is a
unit (epoch or step); the last unit R is the end of a complete training. Values are as reported; for `metric:max` a
searcher negates them internally. Trials are numbered from 1; numbers below 1 are results of other searches.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kernel_backend.model.record import Value
from kernel_backend.model.search.records import Complete, Continue, Create, Pause, Prune, Reason, Resume


class Searcher(Protocol):
    """Interface of a search method, which decides which trial trains next, and how far.

    The service stores each call and each decision, and replays them after a restart. The same calls must therefore
    lead to the same state: an implementation must not read a clock or do I/O, and must take all random numbers from
    `stream`. The function `sampled` makes a searcher that trains each trial to its end.

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
        """Return how many more gangs (sets of slots, each for one trial) the search could use now.

        Returns
        -------
        int
            Number of gangs, in addition to those that its trials hold.
        """

    def on_slot(self) -> Create | Resume | None:
        """Decide which trial gets a gang (the slots to train one trial) that the scheduler has granted to the search.

        Returns
        -------
        Create, Resume or None
            A new trial, or a paused one; None if there is nothing to train any more.
        """

    def granted(self, decision: Create | Resume) -> None:
        """Apply a decision that `on_slot` made earlier, to replay a log; no new decision is made.

        Parameters
        ----------
        decision : Create or Resume
            The stored decision.
        """

    def on_report(self, trial: int, unit: int, value: float) -> Continue | Pause | Prune | Complete:
        """Process a report of a trial, and decide what the trial does next.

        The decision is about a trial that has reached its target, the unit set by the last decision; before that, the
        trial continues to the same target. If a trial reports twice for one unit, only the first report counts.

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
            Decision about the trial.
        """

    def on_exit(self, trial: int, reason: Reason) -> None:
        """Process the end of a trial that was not decided by the search.

        It is not called if a trial is preempted or restarted.

        Parameters
        ----------
        trial : int
            Number of the trial.
        reason : {"failed", "invalid", "stopped", "pruned"}
            Reason of its end.
        """

    def told(self, trial: int, params: dict[str, Value]) -> None:
        """Record the hyperparameters with which a trial really runs; they may differ from those proposed.

        Parameters
        ----------
        trial : int
            Number of the trial; below 1 for a trial of an earlier search, which this call adds to the observations.
        params : dict of str to Any
            Hyperparameters by name.
        """

    def promote(self, trial: int) -> None:
        """Let a trial train on to its next target, even if the search method would not choose it.

        A paused trial gets the next gang (the slots of one attempt) that the search is granted. A trial that trains
        now continues when it reaches its present target, the unit at which it would be compared with others.

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
        """Set the total number of trials, and reopen the search if it was closed.

        Parameters
        ----------
        trials : int or None
            Number of trials in total; None for no limit.

        Raises
        ------
        Conflict
            There are more trials already.
        """

    def close(self) -> None:
        """Close the search: it uses no more gangs.

        Trials that train are paused, and resume first if the search is extended.
        """

    def over(self) -> bool:
        """Return whether the search has ended.

        Returns
        -------
        bool
            True if no trial trains, and none will be started.
        """


class Plan(NamedTuple):
    """Size of a search as far as it is known before its start, displayed in a dry run.

    Parameters
    ----------
    trials : int or None
        Maximum number of trials; None if it is not known, because the search goes on until its budget is spent or its
        method ends it.
    shortest : int
        Length of the shortest training of a trial, in units (epochs or steps).
    reports : int
        Number of reports of all trials together at which the search decides about a trial; 0 if unknown.

    Examples
    --------
    >>> from daylight.search import Plan
    >>> Plan(trials=16, shortest=10, reports=16).shortest
    10
    """

    trials: int | None  # maximum; None: limited by a budget or by the method
    shortest: int  # units of the trial that trains least
    reports: int  # number of reports of all trials after which a decision is made; 0: unknown
