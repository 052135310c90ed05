"""Compute the status of a search for display, from its log and its stored trials."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.best import best_first, best_of
from kernel_backend.model.experiment import Config, Experiment, Metric
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
from kernel_backend.model.states import EXPERIMENT_ENDED, TrialState
from kernel_backend.model.values import nearest
from kernel_backend.model.views.search_status import (
    BracketStatus,
    IncumbentPoint,
    RungStatus,
    SearchCurves,
    SearchStatus,
    TrialCurve,
    TrialRow,
    TrialSummary,
)
from kernel_backend.search.base import Searcher
from kernel_backend.search.brackets import Bracket
from kernel_backend.search.log import replay
from kernel_backend.search.make import make
from kernel_backend.search.report.columns import columns, flat, ordered
from kernel_backend.search.rungs import WORST, RankKey, Rung
from kernel_backend.search.settings import unit_in

ENTRIES = 120  # results of a rung that are drawn; half of them are its best
SORTED = ("best", "trial", "state", "unit", "value", "until", "attempts", "seconds")


@dataclass
class TrialHistory:
    """What a search's log says about one trial: hyperparameters, parent, target, and reported values by unit."""

    params: Mapping[str, Value] = field(default_factory=dict)
    parent: int | None = None
    until: int | None = None
    units: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

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
        """Return the trial's newest value; None before the first."""
        return self.values[-1] if self.values else None


NOTHING = TrialHistory()


class SearchHistory:
    """Trials of a search and the course of its best value, built up from log entries by `take`."""

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

    @property
    def brackets(self) -> Sequence[Bracket]:
        """Return the brackets if the search method has rungs; else an empty sequence."""
        found: Sequence[Bracket] = getattr(self._searcher, "brackets", ())
        return [each for each in found if len(each.rungs) > 1]

    @property
    def replays(self) -> bool:
        """Return whether it needs complete entries, for its searcher; else `take_brief` is faster."""
        return self._searcher is not None

    def take(self, entries: Iterable[LogEntry]) -> None:
        """Apply further log entries, which must directly follow those applied before."""
        found = list(entries)
        if self._searcher is not None:
            self._replay(self._searcher, found)
        self.take_brief(found)

    def take_brief(self, entries: Iterable[LogEntry | LoggedReport]) -> None:
        """Apply log entries to the history alone, without a replay."""
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
            self._named.update(found)
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
        """Return a value, stored so that lower is better, as it was reported; infinite if the trial diverged."""
        return self.metric.lower(lower)  # negating twice restores it


def _judge(settings: Settings, space: Space) -> Searcher | None:
    """Return a searcher from which the brackets are read; None if the method has no rungs, or its package fails."""
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
    """Return the highest unit with enough results, and each trial's first value at or after its end.

    At least ten results are needed, and more than there are columns. Values that are not finite are left out.
    """
    least = max(10, len(columns(history.space)) + 1)
    units = [rung.unit for bracket in history.brackets for rung in bracket.rungs] or [history.settings.units]
    for unit in sorted({1, *units}, reverse=True):
        found = {trial: value for trial, told in history.trials.items() if (value := told.at(unit)) is not None}
        if len(found) >= least or unit == 1:
            return unit, found
    raise AssertionError("the first unit is among them")


@dataclass(frozen=True)
class Page:
    """Page of a table of trials: `sort` is the column to sort by (`-` before it reverses), `offset` the first row."""

    sort: str = "best"
    limit: int = 100
    offset: int = 0


def search_status(
    experiment: Experiment,
    history: SearchHistory,
    trials: Sequence[TrialSummary],
    seconds: Mapping[int, float],
    now: float,
    page: Page,
) -> SearchStatus:
    """Return the status of a search, with the trials on one page of the table.

    `seconds` has the slot-seconds used by each trial; `now` is in seconds since the epoch. Raises InvalidRequest for an
    unknown column.
    """
    settings = history.settings
    chosen = _sorted(trials, history, seconds, page)[page.offset : page.offset + page.limit]
    row, metric = _rows(experiment.config, history, seconds), experiment.config.metric
    best = best_of(((trial.index, trial.best) for trial in trials), metric)
    return SearchStatus(
        number=experiment.number,
        search=experiment.config.search,
        method=settings.method,
        unit="step" if experiment.config.steps is not None else "epoch",
        units=settings.units,
        metric=metric,
        params=history.columns,
        limit=history.limit,
        counts={str(state): count for state, count in Counter(trial.state for trial in trials).items()},
        diverged=len(history.diverged),
        trained=history.trained,
        spent=sum(seconds.values()),
        elapsed=max(0.0, (experiment.ended_at or now) - experiment.created_at),
        closed=history.closed,
        over=experiment.state in EXPERIMENT_ENDED,
        best=next((row(trial) for trial in trials if trial.index == best), None),
        incumbent=tuple(history.incumbent),
        brackets=tuple(
            BracketStatus(rungs=tuple(_rung(rung, history) for rung in bracket.rungs)) for bracket in history.brackets
        ),
        trials=tuple(map(row, chosen)),
    )


def _rows(config: Config, history: SearchHistory, seconds: Mapping[int, float]) -> Callable[[TrialSummary], TrialRow]:
    def row(trial: TrialSummary) -> TrialRow:
        told = history.trials.get(trial.index, NOTHING)
        return TrialRow(
            trial=trial.index,
            state=trial.state,
            params=told.params,
            unit=told.unit,
            value=told.value,
            best=trial.best.value if trial.best else None,
            best_unit=unit_in(config, trial.best) if trial.best else None,
            until=told.until,
            parent=told.parent,
            attempts=trial.attempt,
            seconds=seconds.get(trial.index, 0.0),
            diverged=trial.index in history.diverged,
            failure=trial.failure,
        )

    return row


Rank = tuple[bool, float, str]  # numbers sort before texts


def _sorted(
    trials: Sequence[TrialSummary], history: SearchHistory, seconds: Mapping[int, float], page: Page
) -> list[TrialSummary]:
    """Return trials sorted by the page's column, better values first.

    Trials without a value come last in either order.
    """
    name, around = page.sort.removeprefix("-"), page.sort.startswith("-")
    known = dict.fromkeys((*SORTED, *(column.name for column in columns(history.space)), *history.columns))
    if name not in known:
        raise InvalidRequest(f"sort={page.sort[:50]}: there is no such column{nearest(name, known)}")
    rank_of = _ranking(name, history, seconds)
    ranks = [(rank, trial) for trial in trials if (rank := rank_of(trial)) is not None]
    ranks.sort(key=itemgetter(0), reverse=around)
    ranked = [trial for _, trial in ranks]
    if len(ranked) == len(trials):
        return ranked
    left = {trial.index for trial in ranked}
    return [*ranked, *(trial for trial in trials if trial.index not in left)]


def _ranking(name: str, history: SearchHistory, seconds: Mapping[int, float]) -> Callable[[TrialSummary], Rank | None]:
    """Return the function that returns a trial's sort key in a column; None if the trial has no value there."""
    told, lower = history.trials, history.metric.lower
    match name:
        case "trial":
            return lambda trial: (False, trial.index, "")
        case "state":
            return lambda trial: (True, 0.0, str(trial.state))
        case "attempts":
            return lambda trial: (False, trial.attempt, "")
        case "seconds":
            return lambda trial: (False, seconds.get(trial.index, 0.0), "")
        case "best":
            return lambda trial: (False, lower(trial.best.value), "") if trial.best else None
        case "unit":
            return lambda trial: (False, told.get(trial.index, NOTHING).unit, "")
        case "until":
            return lambda trial: _of_value(told.get(trial.index, NOTHING).until)
        case "value":
            return lambda trial: _of_number(told.get(trial.index, NOTHING).value, lower)
    return lambda trial: _of_value(told.get(trial.index, NOTHING).params.get(name))


def _of_number(value: float | None, lower: Callable[[float], float]) -> Rank | None:
    return None if value is None or math.isnan(value) else (False, lower(value), "")


def _of_value(value: Value) -> Rank | None:
    if isinstance(value, bool | int | float):
        return False, float(value), ""
    return None if value is None else (True, 0.0, str(value))


def _rung(rung: Rung, history: SearchHistory) -> RungStatus:
    places, eta = rung.places, history.settings.eta
    finite = [place for place in places if place.value < WORST]
    least = min(1, len(places)) if history.settings.stopping else 0
    may = max(least, len(places) // eta) if rung.unit < history.settings.units else 0
    went = sum(
        (history.trials[place.trial].until or 0) > rung.unit for place in places if place.trial in history.trials
    )
    return RungStatus(
        unit=rung.unit,
        results=len(places),
        went_on=went,
        best=history.raw(finite[0].value) if finite else None,
        cut=history.raw(places[may - 1].value) if may and places[may - 1].value < WORST else None,
        entries=tuple((place.trial, history.raw(place.value)) for place in _some(finite)),
    )


def _some(places: Sequence[RankKey]) -> list[RankKey]:
    """Return all results, best first.

    If there are more than `ENTRIES`, the best half of that number and some others.
    """
    if len(places) <= ENTRIES:
        return list(places)
    best, others = places[: ENTRIES // 2], places[ENTRIES // 2 :]
    left = ENTRIES - len(best)
    return [*best, *(others[(place * len(others)) // left] for place in range(left))]


def curves(
    experiment: Experiment, history: SearchHistory, trials: Sequence[TrialSummary], limit: int, points: int
) -> SearchCurves:
    """Return the learning curves of at most `limit` trials, best first, with at most `points` points each.

    If there are more trials, half of the limit are the best, and the rest are chosen evenly from the others.
    """
    metric = experiment.config.metric
    told = {
        trial.index: trial for trial in trials if trial.index in history.trials and history.trials[trial.index].units
    }
    ranked = best_first(((trial.index, trial.best) for trial in told.values()), metric)
    ranked += sorted(told.keys() - ranked)
    best, others = ranked[: limit - limit // 2], ranked[limit - limit // 2 :]
    left = min(limit // 2, len(others))
    chosen = [*best, *(others[(place * len(others)) // left] for place in range(left))]
    return SearchCurves(
        unit="step" if experiment.config.steps is not None else "epoch",
        metric=metric,
        of=len(told),
        lines=tuple(_line(trial, history.trials[trial], told[trial].state, points) for trial in chosen),
    )


def _line(trial: int, told: TrialHistory, state: TrialState, points: int) -> TrialCurve:
    """Return a trial's learning curve as every k-th value and the last, at most `points` of them, without averaging.

    Trials are compared by single values, so the curve must show those.
    """
    count = len(told.units)
    kept = sorted({*range(count - 1, -1, -math.ceil(count / points))})
    return TrialCurve(
        trial=trial,
        state=state,
        unit=tuple(told.units[place] for place in kept),
        value=tuple(value if math.isfinite(value := told.values[place]) else None for place in kept),
    )
