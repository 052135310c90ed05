"""Build the state of an experiment that a notebook saves in its output, and fetch the data for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from kernel_backend.client import Client
from kernel_backend.model.record import Record
from kernel_backend.model.views.curves import Curves
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.search_status import SearchCurves, SearchStatus

MIME_TYPE = "application/vnd.daylight.experiment+json"
SAVED_POINTS = 200  # points of each curve in a saved notebook
SAVED_TRIALS, SAVED_LINES, SAVED_UNITS = 50, 30, 40  # of a search: rows, learning curves, and points of each
SAVED_SEARCH = 60_000  # bytes of JSON for these; beyond that they are reduced further

_T = TypeVar("_T")


class SavedSearch(Record):
    """Reduced status of a search: its best values over time, rungs, best trials and their curves."""

    standing: SearchStatus
    curves: SearchCurves


class Saved(Record):
    """State of an experiment that a notebook saves in its output, to draw the experiment without a service.

    The frontend's TypeScript type for it has the same name.
    """

    version: Literal[1] = 1
    number: int
    at: float  # seconds since the epoch: time of the state
    captured: tuple[str, ...] = ()  # sentences about the submission
    names: tuple[str, ...] = ()  # hyperparameters in their order, since notebooks are saved with sorted keys
    overview: Overview
    curves: Curves | None = None
    search: SavedSearch | None = None


def saved_json(
    overview: Overview,
    now: float,
    captured: Sequence[str] = (),
    curves: Curves | None = None,
    search: SavedSearch | None = None,
) -> dict[str, Any]:
    """Return the state of an experiment that a notebook saves, as plain JSON with NaN as text.

    An output has it under MIME_TYPE. `now` is in seconds since the epoch, and `captured` are sentences about the
    submission.
    """
    return Saved(
        number=overview.experiment.number,
        at=now,
        captured=tuple(captured),
        names=tuple(overview.experiment.params),
        overview=overview,
        curves=curves,
        search=search,
    ).to_json()


def curves_of(client: Client, overview: Overview) -> Curves | None:
    """Return curves downsampled for a notebook; None if there are no reports, or if the service fails."""
    number, front = overview.experiment.number, overview.front
    return _if_told(overview, lambda: client.curves(number, front.index if front else 1, SAVED_POINTS))


def search_of(client: Client, overview: Overview) -> SavedSearch | None:
    """Return a search's status reduced for a notebook; None without search or reports, or if the service fails."""
    if overview.experiment.config.search is None:
        return None
    number = overview.experiment.number
    return _if_told(
        overview,
        lambda: fitted(
            client.search(number, limit=SAVED_TRIALS), client.search_curves(number, SAVED_LINES, SAVED_UNITS)
        ),
    )


def fitted(status: SearchStatus, curves: SearchCurves) -> SavedSearch:
    """Return a search's status and learning curves, reduced to fit in a notebook.

    They have as many of the best trials as fit in SAVED_SEARCH characters of JSON, and at least one.
    """
    kept = SAVED_TRIALS
    while True:
        found = SavedSearch(standing=_best_of(status, kept), curves=_lines_of(curves, kept))
        if kept == 1 or len(found.model_dump_json()) <= SAVED_SEARCH:
            return found
        kept //= 2


def _best_of(status: SearchStatus, kept: int) -> SearchStatus:
    """Return a search's status with fewer entries, to save space in a notebook.

    It has at most `kept` trials, at most `kept` results in each rung, and the last 2 * `kept` improvements of the best.
    """
    brackets = tuple(
        bracket.model_copy(
            update={"rungs": tuple(rung.model_copy(update={"entries": rung.entries[:kept]}) for rung in bracket.rungs)}
        )
        for bracket in status.brackets
    )
    changed = {"trials": status.trials[:kept], "brackets": brackets, "incumbent": status.incumbent[-2 * kept :]}
    return status.model_copy(update=changed)


def _lines_of(curves: SearchCurves, kept: int) -> SearchCurves:
    return curves.model_copy(update={"lines": curves.lines[:kept]})


def picture_of(client: Client, overview: Overview) -> bytes | None:
    """Return the curves as a PNG; None if there are no reports, or if the service fails."""
    return _if_told(overview, lambda: client.picture(overview.experiment.number))


def _if_told(overview: Overview, ask: Callable[[], _T]) -> _T | None:
    if not any(trial.step for trial in overview.trials):
        return None
    try:
        return ask()
    except Exception:  # a card without curves is better than none
        return None
