"""Status of a search: its trials, its brackets of rungs, and its incumbent over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, FiniteFloat

from kernel_backend.model.experiment import Metric
from kernel_backend.model.record import Record, Value
from kernel_backend.model.search.records import Limit, Search
from kernel_backend.model.states import TrialState
from kernel_backend.model.trial import Best

Unit = Literal["epoch", "step"]


@dataclass(frozen=True, slots=True)
class TrialSummary:
    """Subset of a trial's fields for the search status, cheap to load for thousands of trials."""

    index: int
    state: TrialState
    attempt: int
    failure: str | None  # the exception's class, of one that has failed
    best: Best | None


class TrialRow(Record):
    """A trial as a row of the search's table. `value` and `best` are values of the metric as reported."""

    trial: int
    state: TrialState
    params: dict[str, Value]  # those that are searched, each block's by a name of its own: `blocks[0].kind`
    unit: int = 0  # the newest whose end was reported
    value: float | None = None  # at its end
    best: FiniteFloat | None = None  # of all validations; None: none yet, or none that is finite
    best_unit: int | None = None  # the one that it was in, or that ended with it
    until: int | None = None  # the unit at whose end it hears more
    parent: int | None = None  # the trial whose checkpoint it began from
    attempts: int = 0
    seconds: FiniteFloat = 0.0  # of slots that it has held
    diverged: bool = False  # its newest value is not finite
    failure: str | None = None  # the exception's class


class RungStatus(Record):
    """Results of the trials at one rung of a bracket, that is at the end of one unit."""

    unit: int
    results: int
    went_on: int  # trials that have trained beyond it, or do
    best: FiniteFloat | None = None
    cut: FiniteFloat | None = None  # the value of the last that may go on by its rank; None: no trial may yet
    entries: tuple[tuple[int, FiniteFloat], ...] = ()  # (trial, value), best first; of many the best, and some others


class BracketStatus(Record):
    """A bracket, its lowest rung first."""

    rungs: tuple[RungStatus, ...]


class IncumbentPoint(Record):
    """A time from which on a trial had the best value of the search."""

    at: FiniteFloat  # seconds since the submission
    units: int  # that all trials together had trained by then
    trial: int
    unit: int
    value: FiniteFloat


class SearchStatus(Record):
    """Status of a search, and a page of its trials."""

    number: int
    search: Search
    method: str
    unit: Unit
    units: int  # R, of one whole training
    metric: Metric
    params: tuple[str, ...]  # the columns of `TrialRow.params`
    limit: int | None  # trials there may be; None: as many as the budget or the method has
    counts: dict[str, int]  # trials by state
    diverged: int
    trained: int  # units of all trials together
    spent: FiniteFloat  # seconds of slots
    elapsed: FiniteFloat  # seconds since the submission, to the end where there is one
    closed: Limit | None  # what is used up, so that nothing more is wanted
    over: bool
    best: TrialRow | None  # the trial with the best value ever reported
    incumbent: tuple[IncumbentPoint, ...]  # at ends of units
    brackets: tuple[BracketStatus, ...]  # none if the method decides about no trial before its end
    trials: tuple[TrialRow, ...]

    @property
    def total(self) -> int:
        """Return the number of trials in any state."""
        return sum(self.counts.values())


class TrialCurve(Record):
    """Metric of one trial over its units; None where it was not finite."""

    trial: int
    state: TrialState
    unit: tuple[int, ...]
    value: tuple[FiniteFloat | None, ...]


class SearchCurves(Record):
    """Learning curves of many trials, the best first; `of` is the number of trials that have one."""

    unit: Unit
    metric: Metric
    of: int
    lines: tuple[TrialCurve, ...]


class Importance(Record):
    """Importance of hyperparameters: each one's share of the difference between good and poor trials.

    The shares add up to 1. They use the values at the end of `unit`, of `trials` trials. If they cannot be computed,
    `missing` says why.
    """

    unit: int | None = None
    trials: int = 0
    shares: dict[str, float] = {}  # the largest first
    missing: str = ""


class Extension(Record):
    """New totals of a search, counted from the submission; at least one must be given."""

    trials: int | None = Field(None, ge=1)
    budget: float | None = Field(None, gt=0)  # slot seconds
    max_time: float | None = Field(None, gt=0)  # seconds
