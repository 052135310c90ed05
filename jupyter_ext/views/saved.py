"""What a notebook's output keeps of an experiment, and what is asked of the service for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from kernel_backend.client import Client
from kernel_backend.model.curves import Curves
from kernel_backend.model.overview import Overview
from kernel_backend.model.record import Record

MIME_TYPE = "application/vnd.daylight.experiment+json"
SAVED_POINTS = 200  # of each curve: what a saved notebook has room for

_T = TypeVar("_T")


class Saved(Record):
    """Enough to draw an experiment with no service at all; `Saved` of the front end's words.ts."""

    version: Literal[1] = 1
    number: int
    at: float  # when this was true: seconds since the epoch
    captured: tuple[str, ...] = ()  # sentences about the submission
    names: tuple[str, ...] = ()  # of the hyperparameters, in their order: notebooks are saved with sorted keys
    overview: Overview
    curves: Curves | None = None


def saved_json(
    overview: Overview, now: float, captured: Sequence[str] = (), curves: Curves | None = None
) -> dict[str, Any]:
    """The value under MIME_TYPE: plain JSON, where NaN is text."""
    return Saved(
        number=overview.experiment.number,
        at=now,
        captured=tuple(captured),
        names=tuple(overview.experiment.params),
        overview=overview,
        curves=curves,
    ).to_json()


def curves_of(client: Client, overview: Overview) -> Curves | None:
    """Its curves, as many points as a notebook keeps; None where it has no reports, or they cannot be had."""
    return _if_told(overview, lambda: client.curves(overview.experiment.number, points=SAVED_POINTS))


def picture_of(client: Client, overview: Overview) -> bytes | None:
    """Its curves as a PNG; None where it has no reports, or it cannot be had."""
    return _if_told(overview, lambda: client.picture(overview.experiment.number))


def _if_told(overview: Overview, ask: Callable[[], _T]) -> _T | None:
    if not any(trial.step for trial in overview.trials):
        return None
    try:
        return ask()
    except Exception:  # a card without curves is still a card
        return None
