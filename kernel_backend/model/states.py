"""Define the state machines, each as a transition table.

`advance` applies them; the documentation is made from them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from kernel_backend.errors import Conflict
from kernel_backend.model import events as e


class ExperimentState(StrEnum):
    """State of an experiment, which summarises its trials."""

    ACTIVE = "active"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"


class TrialState(StrEnum):
    """State of a trial, from queued to ended."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    RELEASING = "releasing"
    PAUSED = "paused"
    STOPPING = "stopping"
    COMPLETED = "completed"
    STOPPED = "stopped"
    PRUNED = "pruned"
    FAILED = "failed"


class AttemptState(StrEnum):
    """State of an attempt, from its creation to the end of its gang."""

    PENDING = "pending"
    PLACED = "placed"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


class Hold(StrEnum):
    """Party that keeps a trial paused; only the same party may lift its hold."""

    USER = "user"
    SEARCH = "search"
    ENGINE = "engine"


class Outcome(StrEnum):
    """Outcome of an attempt, derived from the engine's report and the launcher's record."""

    OK = "ok"
    RELEASED = "released"
    FAILED = "failed"
    LOST = "lost"
    KILLED = "killed"
    TIMEOUT = "timeout"
    INFEASIBLE = "infeasible"


State = TypeVar("State", bound=StrEnum)


class Choice(NamedTuple, Generic[State]):
    """Transition with two target states.

    `guard` names the boolean field of the event that chooses between them.
    """

    guard: str
    if_true: State
    if_false: State


class IllegalTransition(Conflict):
    """Error: the state machine has no transition for this event in this state."""

    def __init__(self, state: StrEnum, event: e.Event) -> None:
        name = type(event).__name__.lower()
        super().__init__(f"{name} is not possible while {state}", state=str(state), event=name)


_T, _A, _X = TrialState, AttemptState, ExperimentState
_RETRY = Choice("retries_left", _T.QUEUED, _T.FAILED)
_HELD = Choice("held", _T.PAUSED, _T.QUEUED)

Table = dict[tuple[State, type[e.Event]], State | Choice[State]]

TRIAL: Table[TrialState] = {
    (_T.QUEUED, e.Placed): _T.STARTING,
    (_T.QUEUED, e.Held): _T.PAUSED,
    (_T.QUEUED, e.Stop): _T.STOPPED,
    (_T.QUEUED, e.Prune): _T.PRUNED,
    (_T.STARTING, e.Started): _T.RUNNING,
    (_T.STARTING, e.Finished): _T.COMPLETED,
    (_T.STARTING, e.Lost): _T.QUEUED,
    (_T.STARTING, e.Errored): _RETRY,
    (_T.STARTING, e.Invalid): _T.FAILED,
    (_T.STARTING, e.Release): _T.RELEASING,
    (_T.STARTING, e.Released): _HELD,
    (_T.STARTING, e.Stop): _T.STOPPING,
    (_T.STARTING, e.Prune): _T.STOPPING,
    (_T.RUNNING, e.Finished): _T.COMPLETED,
    (_T.RUNNING, e.Lost): _T.QUEUED,
    (_T.RUNNING, e.Errored): _RETRY,
    (_T.RUNNING, e.Invalid): _T.FAILED,
    (_T.RUNNING, e.Release): _T.RELEASING,
    (_T.RUNNING, e.Released): _HELD,
    (_T.RUNNING, e.Stop): _T.STOPPING,
    (_T.RUNNING, e.Prune): _T.STOPPING,
    (_T.RELEASING, e.Released): _HELD,
    (_T.RELEASING, e.Lost): _HELD,
    (_T.RELEASING, e.Finished): _T.COMPLETED,
    (_T.RELEASING, e.Stop): _T.STOPPING,
    (_T.RELEASING, e.Prune): _T.STOPPING,
    (_T.PAUSED, e.Lifted): _T.QUEUED,
    (_T.PAUSED, e.Stop): _T.STOPPED,
    (_T.PAUSED, e.Prune): _T.PRUNED,
    (_T.STOPPING, e.Ended): Choice("pruned", _T.PRUNED, _T.STOPPED),
    (_T.COMPLETED, e.Extended): _T.QUEUED,
}

ATTEMPT: Table[AttemptState] = {
    (_A.PENDING, e.Placed): _A.PLACED,
    (_A.PENDING, e.Ended): _A.ENDED,
    (_A.PLACED, e.Started): _A.RUNNING,
    (_A.PLACED, e.Ended): _A.ENDED,
    (_A.RUNNING, e.Ending): _A.ENDING,
    (_A.RUNNING, e.Ended): _A.ENDED,
    (_A.ENDING, e.Ended): _A.ENDED,
}

EXPERIMENT: Table[ExperimentState] = {
    (_X.ACTIVE, e.Paused): _X.PAUSED,
    (_X.ACTIVE, e.Stop): _X.STOPPING,
    (_X.ACTIVE, e.Completed): _X.COMPLETED,
    (_X.ACTIVE, e.Failed): _X.FAILED,
    (_X.ACTIVE, e.Extended): _X.ACTIVE,
    (_X.PAUSED, e.Resumed): _X.ACTIVE,
    (_X.PAUSED, e.Stop): _X.STOPPING,
    (_X.PAUSED, e.Completed): _X.COMPLETED,
    (_X.PAUSED, e.Failed): _X.FAILED,
    (_X.PAUSED, e.Extended): _X.PAUSED,
    (_X.STOPPING, e.Ended): _X.STOPPED,
    (_X.COMPLETED, e.Extended): _X.ACTIVE,
}


def step(table: Table[State], state: State, event: e.Event) -> State:
    """Return the state that `table` gives after `event`.

    Raises IllegalTransition (HTTP 409) if there is no transition.
    """
    target = table.get((state, type(event)))
    if target is None:
        raise IllegalTransition(state, event)
    if isinstance(target, Choice):
        target = target.if_true if getattr(event, target.guard) else target.if_false
    return target


def advance(state: State, event: e.Event) -> State:
    """Return the state of a trial, attempt or experiment after `event`; raises IllegalTransition if there is none."""
    tables: dict[type[StrEnum], Table[State]] = {
        TrialState: TRIAL,  # type: ignore[dict-item]
        AttemptState: ATTEMPT,  # type: ignore[dict-item]
        ExperimentState: EXPERIMENT,  # type: ignore[dict-item]
    }
    return step(tables[type(state)], state, event)


HOLDING_SLOTS = frozenset({_T.STARTING, _T.RUNNING, _T.RELEASING, _T.STOPPING})
LIVE = HOLDING_SLOTS | {_T.QUEUED}
TRIAL_ENDED = frozenset({_T.COMPLETED, _T.STOPPED, _T.PRUNED, _T.FAILED})
EXPERIMENT_ENDED = frozenset({_X.STOPPED, _X.COMPLETED, _X.FAILED})
