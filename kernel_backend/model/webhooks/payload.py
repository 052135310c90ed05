"""Build the payload of a notice: the JSON about an experiment that a webhook's receiver gets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import FiniteFloat

from kernel_backend.model.experiment import Experiment, Metric
from kernel_backend.model.record import Record, Value
from kernel_backend.model.states import TrialState
from kernel_backend.model.views.overview import Overview
from kernel_backend.model.views.result import result_text
from kernel_backend.model.webhooks.records import Notice

VERSION = 1
TEST = "test"  # type of a message that a user has requested to test a webhook
CONFIRM = "confirm"  # type of a mail with the link that confirms its address
_LONGEST_ERROR = 2000


class BestTrial(Record):
    """Best trial of an experiment by its metric."""

    trial: str  # 12.3
    value: FiniteFloat
    step: int
    params: dict[str, Value]


class ExperimentData(Record):
    """Experiment as a payload describes it; times are ISO 8601 in UTC."""

    number: int
    name: str
    owner: str
    group: str
    state: str  # when the message is sent, which may be later than the event
    note: str
    tags: tuple[str, ...]
    created_at: str
    ended_at: str | None
    trials: dict[TrialState, int]  # number by state
    metric: Metric
    best: BestTrial | None = None
    error: str | None = None  # of the first trial that failed


class Payload(Record):
    """Body of a message to a webhook. Later versions may add fields; a changed meaning increases `version`."""

    version: int = VERSION
    id: str  # the same in each repeat of a message
    type: str  # experiment.completed, test, ...
    timestamp: str  # of the event
    text: str  # the event in one sentence
    data: ExperimentData | None = None  # None in a test, and for an experiment that was deleted
    url: str | None = None  # page of the experiment in browsers; None without `data`, or if its address is not known


def payload(notice: Notice, overview: Overview | None, pages: str = "") -> Payload:
    """Return the payload of a notice about an experiment; `overview` is None if the experiment was deleted.

    `pages` is the address of the service's pages in browsers, "" if it is not known.
    """
    return Payload(
        id=notice.id,
        type=notice.event if notice.event == TEST else f"experiment.{notice.event}",
        timestamp=_time(notice.at),
        text=_text(notice, overview),
        data=None if overview is None else _data(overview),
        url=f"{pages}/experiments/{notice.experiment}" if pages and overview is not None else None,
    )


def confirmation(id: str, at: float, url: str, link: str) -> Payload:
    """Return the mail that asks whether its address is to get messages; it has no text of the user's who added it.

    `url` is the service's address in browsers, and `link` the page that confirms.
    """
    text = (
        f"A user of Daylight, {url}, wants mail about how their trainings end sent to this address.\n\n"
        f"To allow that, open this page within a day, and press its button:\n\n{link}\n\n"
        "If you do not know of it, do nothing: without it, nothing else is sent."
    )
    return Payload(id=id, type=CONFIRM, timestamp=_time(at), text=text)


def sentence(event: str, overview: Overview) -> str:
    """Describe an event of an experiment, such as `failed`, in one sentence with the best result or the error."""
    experiment, error = overview.experiment, _data(overview).error
    about = f"#{experiment.number}{f' {experiment.name}' if experiment.name else ''} {event}"
    what = error.splitlines()[0] if event == "failed" and error else result_text(overview)
    return f"{about}: {what}" if what else about


def _text(notice: Notice, overview: Overview | None) -> str:
    if notice.event == TEST:
        return "This is a test message of Daylight."
    if overview is None:
        return f"#{notice.experiment} {notice.event}, and was deleted since"
    return sentence(notice.event, overview)


def _data(overview: Overview) -> ExperimentData:
    experiment, front = overview.experiment, overview.front
    best = None
    if front is not None and front.best is not None:
        best = BestTrial(trial=front.id, value=front.best.value, step=front.best.step, params=front.params)
    failure = next((each.failure for each in overview.trials if each.failure and each.state is TrialState.FAILED), None)
    return ExperimentData(
        **_described(experiment),
        state=overview.state,
        trials=overview.counts,
        metric=experiment.config.metric,
        best=best,
        error=f"{failure.type}: {failure.message}"[:_LONGEST_ERROR] if failure else None,
    )


def _described(experiment: Experiment) -> dict[str, Any]:
    return {
        **{name: getattr(experiment, name) for name in ("number", "name", "owner", "group", "note", "tags")},
        "created_at": _time(experiment.created_at),
        "ended_at": None if experiment.ended_at is None else _time(experiment.ended_at),
    }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
