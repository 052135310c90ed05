"""What the end of an attempt means to its trial: events and changes, from what is known of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernel_backend.model import events as e
from kernel_backend.model.states import Hold, Outcome, TrialState
from kernel_backend.model.trial import Attempt, Failure, Trial


@dataclass(frozen=True)
class Ending:
    """An event for the trial, and changes to its other fields."""

    event: e.Event
    changes: dict[str, Any] = field(default_factory=dict)


def ending(
    trial: Trial,
    attempt: Attempt,
    outcome: Outcome,
    failure: Failure | None,
    progress: bool,
    max_restarts: int,
) -> Ending:
    """What follows for a trial that still holds this attempt's slots.

    Retries count attempts without progress (`progress`: a checkpoint was committed beyond where this one began). A
    lost gang never counts. The same error at the same step twice in a row ends the trial at once.
    """
    if trial.state is TrialState.STOPPING:
        return Ending(e.Ended())
    if outcome is Outcome.OK:
        return Ending(e.Finished(), {"failures": 0, "failure": None})
    if outcome is Outcome.INFEASIBLE:
        return Ending(e.Lost(held=True), {"holds": trial.holds | {Hold.ENGINE}})
    if trial.state is TrialState.RELEASING:
        # It was on its way out: how it went is of no matter, its newest checkpoint is what counts.
        held = bool(trial.holds)
        return Ending(e.Released(held=held) if outcome is Outcome.RELEASED else e.Lost(held=held))
    if outcome in (Outcome.FAILED, Outcome.TIMEOUT):
        return _errored(trial, outcome, failure, progress, max_restarts)
    if outcome is Outcome.RELEASED:
        # Nobody here asked (the engine or a person signalled the launcher): it goes on from its checkpoint.
        return Ending(e.Lost(), {"failures": 0})
    return Ending(e.Lost(), {"failures": 0} if progress else {})


def _errored(trial: Trial, outcome: Outcome, failure: Failure | None, progress: bool, max_restarts: int) -> Ending:
    if failure is not None and failure.invalid:
        return Ending(e.Invalid(), {"failure": failure})
    counted = not (progress and outcome is Outcome.TIMEOUT)
    failures = (0 if progress else trial.failures) + counted
    # An error that was raised says so by its traceback; a rank that was killed has none, and proves nothing.
    again = failure is not None and failure.traceback != "" and failure.same_as(trial.failure)
    retries_left = failures <= max_restarts and not again
    return Ending(e.Errored(retries_left=retries_left), {"failures": failures, "failure": failure})
