"""Compute the status of a search for display, from its log and its stored trials."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import Config, Experiment
from kernel_backend.model.record import Value
from kernel_backend.model.states import EXPERIMENT_ENDED, TrialState
from kernel_backend.model.values import nearest
from kernel_backend.model.views.best import best_first, best_of, best_values
from kernel_backend.model.views.search_status import (
    BracketStatus,
    RungStatus,
    SearchCurves,
    SearchStatus,
    TrialCurve,
    TrialRow,
    TrialSummary,
)
from kernel_backend.search.report.columns import columns
from kernel_backend.search.report.history import NOTHING, SearchHistory, TrialHistory
from kernel_backend.search.report.usage import usage_text
from kernel_backend.search.rungs import WORST, RankKey, Rung
from kernel_backend.search.settings import unit_in

ENTRIES = 120  # results of a rung that are drawn; half of them are its best
SORTED = ("best", "trial", "state", "unit", "value", "until", "attempts", "seconds")


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
    chosen = _on_page(trials, history, seconds, page)
    row, metric = _rows(experiment.config, history, seconds), experiment.config.metric
    best, spent = best_of(best_values(trials), metric), sum(seconds.values())
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
        spent=spent,
        usage=usage_text(experiment.config, history, spent),
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


def _on_page(
    trials: Sequence[TrialSummary], history: SearchHistory, seconds: Mapping[int, float], page: Page
) -> list[TrialSummary]:
    """Return the trials on a page of the table: sorted by the page's column, better values first.

    Numbers come before texts, and trials without a value last in either order. `seconds` has the slot-seconds used by
    each trial.
    """
    name, around = page.sort.removeprefix("-"), page.sort.startswith("-")
    known = dict.fromkeys((*SORTED, *(column.name for column in columns(history.space)), *history.columns))
    if name not in known:
        raise InvalidRequest(f"sort={page.sort[:50]}: there is no such column{nearest(name, known)}")
    values = _column(name, trials, history, seconds)
    # Plain keys of one type: of 10,000 trials, sorting took most of the time of an answer with tuples as keys.
    of_number = {place: value for place, value in enumerate(values) if type(value) is float}
    of_text = {place: value for place, value in enumerate(values) if type(value) is str}
    numbers = sorted(of_number, key=of_number.__getitem__, reverse=around)
    texts = sorted(of_text, key=of_text.__getitem__, reverse=around)
    ranked = texts + numbers if around else numbers + texts
    ranked += [place for place, value in enumerate(values) if value is None]
    return [trials[place] for place in ranked[page.offset : page.offset + page.limit]]


def _column(
    name: str, trials: Sequence[TrialSummary], history: SearchHistory, seconds: Mapping[int, float]
) -> list[float | str | None]:
    """Return the sort key of each trial in the column `name`; None if it has no value there.

    `seconds` has the slot-seconds used by each trial.
    """
    told, sign = history.trials, -1 if history.metric.mode == "max" else 1
    match name:
        case "trial":
            return [float(trial.index) for trial in trials]
        case "state":
            return [str(trial.state) for trial in trials]
        case "attempts":
            return [float(trial.attempt) for trial in trials]
        case "seconds":
            return [float(seconds.get(trial.index, 0.0)) for trial in trials]
        case "best":
            return [sign * trial.best.value if trial.best else None for trial in trials]
        case "unit":
            return [float(told.get(trial.index, NOTHING).unit) for trial in trials]
        case "until":
            return [_key(told.get(trial.index, NOTHING).until) for trial in trials]
        case "value":
            newest = (told.get(trial.index, NOTHING).value for trial in trials)
            return [None if value is None or math.isnan(value) else sign * value for value in newest]
    return [_key(told.get(trial.index, NOTHING).params.get(name)) for trial in trials]


def _key(value: Value) -> float | str | None:
    if isinstance(value, bool | int | float):
        return float(value)
    return None if value is None else str(value)


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
    """Return all results, best first, or a selection if there are more than `ENTRIES`.

    Half of the selection are the best results, the others are evenly spaced by rank among the rest.
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
    told = {trial.index: trial for trial in trials if history.trials.get(trial.index, NOTHING).units}
    ranked = best_first(best_values(told.values()), metric)
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
    every = math.ceil(count / points)
    kept = slice((count - 1) % every, None, every)  # ends with the last
    return TrialCurve(
        trial=trial,
        state=state,
        unit=tuple(told.units[kept]),
        value=tuple(value if math.isfinite(value) else None for value in told.values[kept]),
    )
