"""Build the history of a search from its log: its trials with their reported values, and the best value over time."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kernel_backend.model.experiment import Metric
from kernel_backend.model.record import Value
from kernel_backend.model.search import registry
from kernel_backend.model.search.records import (
    Closed,
    Continue,
    Create,
    Extended,
    Limit,
    LogEntry,
    LoggedReport,
    ParamsAssigned,
    Reported,
    Resume,
    Settings,
)
from kernel_backend.model.search.space import Space
from kernel_backend.model.views.search_status import IncumbentPoint
from kernel_backend.search.base import Searcher
from kernel_backend.search.brackets import Bracket
from kernel_backend.search.log import replay
from kernel_backend.search.make import make
from kernel_backend.search.report.columns import columns, flat, ordered

LEAST_RESULTS = 30  # of a unit, to compare hyperparameters by: its best tenth is three trials


@dataclass
class TrialHistory:
    """Data of a search's log about one trial: hyperparameters, parent, target, and reported values by unit."""

    params: Mapping[str, Value] = field(default_factory=dict)
    parent: int | None = None
    until: int | None = None
    units: array[int] = field(default_factory=lambda: array("q"))  # arrays, since there may be millions of values
    values: array[float] = field(default_factory=lambda: array("d"))

    def at(self, unit: int) -> float | None:
        """Return the trial's first value at or after the end of a unit; None if there is none or it is not finite."""
        place = bisect_left(self.units, unit)
        value = self.values[place] if place < len(self.values) else math.nan
        return value if math.isfinite(value) else None

    @property
    def unit(self) -> int:
        """Return the newest unit (epoch or step) at whose end the trial has reported."""
        return self.units[-1] if self.units else 0

    @property
    def value(self) -> float | None:
        """Return the newest value that the trial has reported, finite or not; None before the first."""
        return self.values[-1] if self.values else None


NOTHING = TrialHistory()


class SearchHistory:
    """Trials of a search and its best value over time, built from log entries by `take`."""

    def __init__(self, settings: Settings, space: Space, begun: float) -> None:
        """Create an empty history; `begun` is the submission time in seconds since the epoch."""
        self._searcher = _judge(settings, space)
        self.metric, self._begun = Metric(mode=settings.mode), begun
        self.settings, self.space = settings, space
        self.trials: dict[int, TrialHistory] = {}
        self.columns: tuple[str, ...] = ()  # columns that at least one trial has
        self._named = set[str]()
        self.incumbent: list[IncumbentPoint] = []
        self.trained = 0  # units trained by all trials
        self.diverged = set[int]()  # trials whose newest value is not finite
        self.entries = 0
        self.limit = settings.limit
        self.closed: Limit | None = None
        self.restored: Sequence[Bracket] | None = None  # brackets that were stored; the searcher has no entries then

    @property
    def brackets(self) -> Sequence[Bracket]:
        """Return the brackets if the search method has rungs; else an empty sequence."""
        found: Sequence[Bracket] = getattr(self._searcher, "brackets", ()) if self.restored is None else self.restored
        return [each for each in found if len(each.rungs) > 1]

    @property
    def replays(self) -> bool:
        """Return whether the history needs complete log entries, because a searcher replays them for its brackets.

        If not, reports may be read in their short form (`LoggedReport`), which is faster; pass them to `take_brief`.
        """
        return self._searcher is not None

    def take(self, entries: Iterable[LogEntry]) -> None:
        """Apply further log entries, which must directly follow those applied before."""
        found = list(entries)
        if self._searcher is not None:
            self._replay(self._searcher, found)
        self.take_brief(found)

    def take_brief(self, entries: Iterable[LogEntry | LoggedReport]) -> None:
        """Apply log entries to the history alone, without replaying them in a searcher."""
        for entry in entries:
            self.entries = entry.number
            if isinstance(entry, LogEntry):
                self._take(entry)
            elif entry.trial in self.trials:
                if entry.until is not None:
                    self.trials[entry.trial].until = entry.until
                self._report(entry, entry.at - self._begun)

    def _replay(self, searcher: Searcher, entries: Sequence[LogEntry]) -> None:
        try:
            replay(searcher, entries)
        except Exception:
            method = registry.find(self.settings.method)
            if method is not None and not method.package:
                raise
            self._searcher = None  # the package of the method fails: show everything but its rungs

    def _take(self, entry: LogEntry) -> None:
        match entry.decision:
            case Create() as created:
                self.trials[created.trial] = TrialHistory(parent=created.parent, until=created.until)
                self._know(created.trial, created.params)
            case Resume() | Continue() as going if entry.trial in self.trials:
                self.trials[entry.trial].until = going.until
        match entry.event:
            case Reported() as report if report.trial in self.trials:
                self._report(report, entry.at - self._begun)
            case ParamsAssigned() as told if told.trial in self.trials:
                self._know(told.trial, told.params)
            case Extended():
                self.limit, self.closed = entry.event.trials, None
            case Closed():
                self.closed = entry.event.limit

    def _know(self, trial: int, params: Mapping[str, Value]) -> None:
        self.trials[trial].params = found = flat(self.space, params)
        if not self._named.issuperset(found):
            self.know_columns(found)

    def know_columns(self, names: Iterable[str]) -> None:
        """Add columns to the table of trials; `names` are columns in which at least one trial has a value."""
        self._named.update(names)
        self.columns = ordered(self.space, self._named)

    def _report(self, report: Reported | LoggedReport, at: float) -> None:
        told = self.trials[report.trial]
        if report.unit <= told.unit:
            return  # trained again after a fault: the first value is used
        self.trained += report.unit - told.unit
        told.units.append(report.unit)
        told.values.append(report.value)
        (self.diverged.discard if math.isfinite(report.value) else self.diverged.add)(report.trial)
        if self.metric.better(report.value, self.incumbent[-1].value if self.incumbent else None):
            self.incumbent.append(
                IncumbentPoint(at=at, units=self.trained, trial=report.trial, unit=report.unit, value=report.value)
            )

    def raw(self, lower: float) -> float:
        """Return a value as it was reported, from the form in which lower is better; infinite if the trial diverged."""
        return self.metric.lower(lower)  # negating twice restores it


def _judge(settings: Settings, space: Space) -> Searcher | None:
    """Return a searcher by which a replay finds the state of the brackets.

    None if the method compares trials at no rungs, or if the package of the method fails.
    """
    method = registry.find(settings.method)
    if method is None or method.judged != "rungs":
        return None
    try:
        # Any sampler will do, since a replay makes no proposals.
        return make(settings.model_copy(update={"sampler": "random"}), space)
    except Exception:
        if not method.package:
            raise
        return None


def ranked_values(history: SearchHistory) -> tuple[int, dict[int, float]]:
    """Return the highest unit with enough results, or else 1, and each trial's first value at or after its end.

    `LEAST_RESULTS` are needed, and more than there are columns. Values that are not finite are left out.
    """
    least = max(LEAST_RESULTS, len(columns(history.space)) + 1)
    units = [rung.unit for bracket in history.brackets for rung in bracket.rungs] or [history.settings.units]
    for unit in sorted({1, *units}, reverse=True):
        found = {trial: value for trial, told in history.trials.items() if (value := told.at(unit)) is not None}
        if len(found) >= least or unit == 1:
            return unit, found
    raise AssertionError("the first unit is among them")
