"""Define webhooks, and the notices that wait in the outbox until they are delivered."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, FiniteFloat

from kernel_backend.model.experiment import Experiment
from kernel_backend.model.record import Record
from kernel_backend.model.states import ExperimentState

EventName = Literal["submitted", "paused", "resumed", "completed", "failed", "stopped"]
EVENTS: tuple[EventName, ...] = get_args(EventName)
ENDS: tuple[EventName, ...] = ("completed", "failed", "stopped")
MOST_WAITING = 1000  # notices of one webhook; beyond, the oldest is dropped

_BY_STATE: dict[ExperimentState, EventName] = {
    ExperimentState.ACTIVE: "resumed",
    ExperimentState.PAUSED: "paused",
    ExperimentState.COMPLETED: "completed",
    ExperimentState.FAILED: "failed",
    ExperimentState.STOPPED: "stopped",
}


class NewWebhook(Record):
    """Body of `POST /api/webhooks`: an address, and the events of which it is notified."""

    url: str = Field(min_length=1, max_length=2000)
    events: tuple[EventName, ...] = Field(ENDS, min_length=1, max_length=len(EVENTS))
    secret: str = Field("", max_length=200)  # key of the signatures; "": the service generates one
    everyone: bool = False  # experiments of all users, for admins; else one's own


class Webhook(Record):
    """A webhook as its owner and admins see it."""

    id: int
    owner: str
    url: str  # credentials and tokens in it are replaced
    events: tuple[str, ...]
    everyone: bool = False
    at: FiniteFloat  # when it was added
    secret: str = ""  # only in the answer to its addition
    unconfirmed: str = ""  # what is to be done before messages are sent; "": nothing
    off: str = ""  # why it was switched off; "": it is on
    problem: str = ""  # why the newest delivery failed; "": it succeeded
    failing_since: FiniteFloat | None = None
    delivered_at: FiniteFloat | None = None  # time of the newest delivery
    waiting: int = 0  # notices that are not delivered yet
    dropped: int = 0  # notices that were given up


class StoredWebhook(Record):
    """A webhook as it is stored, with its whole address and its secret.

    While a mail address waits for confirmation, `link` is the SHA-256 of the secret in the link that confirms it.
    """

    id: int = 0
    owner: str
    url: str
    secret: str
    events: tuple[str, ...]
    everyone: bool
    at: FiniteFloat
    link: str = ""
    confirmed_at: FiniteFloat | None = None  # when that link was used; None: no confirmation was asked for
    request: str | None = None  # id of the request that added it, which its owner's client has chosen
    admin_at: FiniteFloat | None = (
        None  # of one for everyone's experiments: when its owner was last seen to be an admin
    )
    off: str = ""
    problem: str = ""
    failing_since: FiniteFloat | None = None
    delivered_at: FiniteFloat | None = None
    dropped: int = 0


class Notice(Record):
    """Message to a webhook about an event of an experiment, stored until it is delivered."""

    seq: int
    id: str  # by which a receiver recognises repeats
    webhook: int
    event: str
    experiment: int
    at: FiniteFloat


class Tried(Record):
    """Result of a test message to a webhook."""

    webhook: Webhook
    problem: str = ""  # "": it was delivered


class EndedExperiment(Record):
    """Experiment that has ended, for a notice to its owner."""

    number: int
    name: str
    state: str
    ended_at: FiniteFloat
    text: str  # how it ended, in one sentence


class EndedExperiments(Record):
    """Experiments of a user that ended after a given time, oldest first, and whether others have not ended yet."""

    ended: tuple[EndedExperiment, ...] = ()
    active: bool = False
    at: FiniteFloat  # time of the answer


def event_of(before: ExperimentState, after: Experiment) -> EventName | None:
    """Return the event that webhooks report when an experiment passes from state `before` to the state of `after`.

    None if the state is unchanged, or is one of which webhooks are not notified.
    """
    return None if before is after.state else _BY_STATE.get(after.state)
