"""Define the status of a search: its trials, its brackets of rungs, and which trials have been its best over time."""

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
    """Fields of a trial that the search status needs, cheap to load for thousands of trials."""

    index: int
    state: TrialState
    attempt: int
    failure: str | None  # class of the exception, if it has failed
    best: Best | None


class TrialRow(Record):
    """Row of the table of a search's trials. `value` and `best` are not negated for `metric:max`."""

    trial: int
    state: TrialState
    params: dict[str, Value]  # searched parameters; those of blocks as `blocks[0].kind`
    unit: int = 0  # newest unit with a report at its end
    value: float | None = None  # at the end of `unit`
    best: FiniteFloat | None = None  # of all validations; None: no finite value yet
    best_unit: int | None = None  # unit of the best validation
    until: int | None = None  # unit after which the search decides how it continues
    parent: int | None = None  # trial from whose checkpoint it started
    attempts: int = 0
    seconds: FiniteFloat = 0.0  # slot-seconds used
    diverged: bool = False  # the newest value is not finite
    failure: str | None = None  # class of the exception


class RungStatus(Record):
    """Results at one rung: how the trials that have trained for `unit` units (epochs or steps) compare."""

    unit: int
    results: int
    went_on: int  # number of trials that trained beyond this rung
    best: FiniteFloat | None = None
    cut: FiniteFloat | None = None  # worst value that is promoted by rank; None: no trial may be promoted yet
    entries: tuple[tuple[int, FiniteFloat], ...] = ()  # (trial, value), best first; of many a selection


class BracketStatus(Record):
    """Bracket of a search: a ladder of rungs, which are training lengths at which trials are compared, lowest first."""

    rungs: tuple[RungStatus, ...]


class IncumbentPoint(Record):
    """Time at which a trial became the incumbent, that is the best of the search so far."""

    at: FiniteFloat  # seconds since the submission
    units: int  # units trained by all trials together until then
    trial: int
    unit: int
    value: FiniteFloat


class SearchStatus(Record):
    """Status of a search, with one page of the table of its trials."""

    number: int
    search: Search
    method: str
    unit: Unit
    units: int  # R: length of one complete training
    metric: Metric
    params: tuple[str, ...]  # columns of `TrialRow.params`
    limit: int | None  # maximum number of trials; None: determined by the budget or the method
    counts: dict[str, int]  # number of trials by state
    diverged: int
    trained: int  # units trained by all trials together
    spent: FiniteFloat  # slot-seconds used
    usage: str  # the training and slot time that were used, as text; "" before any was
    elapsed: FiniteFloat  # seconds from the submission to the end, or until now
    closed: Limit | None  # the limit that is used up, so that no more trials start
    over: bool
    best: TrialRow | None  # trial with the best value of all reports
    incumbent: tuple[IncumbentPoint, ...]  # by values at the ends of units
    brackets: tuple[BracketStatus, ...]  # empty if the method decides nothing before a trial's end
    trials: tuple[TrialRow, ...]

    @property
    def total(self) -> int:
        """Return the number of trials in any state."""
        return sum(self.counts.values())


class TrialCurve(Record):
    """Metric of one trial at the end of each unit; None where the value is not finite."""

    trial: int
    state: TrialState
    unit: tuple[int, ...]
    value: tuple[FiniteFloat | None, ...]


class SearchCurves(Record):
    """Learning curves of trials, best first; `of` is the number of trials that have a curve."""

    unit: Unit
    metric: Metric
    of: int
    lines: tuple[TrialCurve, ...]


class Importance(Record):
    """Contribution of each hyperparameter to the difference between good and poor trials.

    The shares add up to 1, and are computed from the values of `trials` trials at the end of `unit`. If they cannot be
    computed, `missing` says why.
    """

    unit: int | None = None
    trials: int = 0
    shares: dict[str, float] = {}  # the largest first
    missing: str = ""


class Extension(Record):
    """New limits of a search, each a total since its submission; at least one must be set."""

    trials: int | None = Field(None, ge=1)
    budget: float | None = Field(None, gt=0)  # slot-seconds
    max_time: float | None = Field(None, gt=0)  # seconds
