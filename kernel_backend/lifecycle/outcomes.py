"""Decide what the end of an attempt means for its trial: an event, and changes of fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from kernel_backend.errors import InvalidDefinition, NotFinite
from kernel_backend.lifecycle.error_class import of_storage, unsaved, would_repeat
from kernel_backend.model import events as e
from kernel_backend.model.reports import LogMatch
from kernel_backend.model.resources import node_of
from kernel_backend.model.states import Hold, Outcome, TrialState
from kernel_backend.model.trial import NOT_SAVED, USAGE_ERROR, Attempt, Failure, Trial


@dataclass(frozen=True)
class AttemptEnd:
    """Consequence of an attempt's end for its trial: an event, changes to other fields, and notes for the user.

    If `pause` is True, the whole experiment is to be paused first, since the user must solve a problem. If `left` is
    True, the gang has left by itself, as after a target at which it got no instruction.
    """

    event: e.Event
    changes: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pause: bool = False
    left: bool = False

    @property
    def final(self) -> bool:
        """Return whether the trial fails for good, without another attempt."""
        return isinstance(self.event, e.Errored) and not self.event.retries_left


def attempt_end(
    trial: Trial,
    attempt: Attempt,
    outcome: Outcome,
    failure: Failure | None,
    progress: bool,
    max_restarts: int,
    matched: Sequence[LogMatch] = (),
) -> AttemptEnd:
    """Return the consequence of an attempt's end for its trial, which still holds the attempt's slots.

    The trial fails after more than `max_restarts` failed attempts in a row; an attempt with `progress` (the trial got
    further than before) begins the count anew, and a lost gang is not counted. The trial fails at once if its program
    rejects its command line, at an error that follows from the user's code alone, if the same error occurs twice in a
    row at the same step (before the first step, only an error in the user's own program), or if a log policy among
    `matched` cancels retries. A checkpoint from which a program could not go on costs no retry.
    Errors of storage never fail a trial: it is paused when its retries are used up.
    """
    if trial.state is TrialState.STOPPING:
        # Only a trial that its search pruned has this hold; one that a user stopped does not.
        return AttemptEnd(e.Ended(pruned=Hold.SEARCH in trial.holds), notes=_left_unsaved(failure))
    if outcome is Outcome.OK:
        return AttemptEnd(e.Finished(), {"failures": 0, "failure": None})
    if outcome is Outcome.INFEASIBLE:
        # The engine's own queue can never start the gang, even if Daylight's scheduler considers it feasible: the user
        # must act.
        why = failure.message if failure is not None else "its engine can never hold it"
        return AttemptEnd(e.Lost(held=True), {"failure": failure}, (f"paused: {why}",), pause=True)
    if trial.state is TrialState.RELEASING:
        # The attempt was being preempted or paused: its newest checkpoint is used, whatever the outcome.
        held = bool(trial.holds)
        event = e.Released(held=held) if outcome is Outcome.RELEASED else e.Lost(held=held)
        return AttemptEnd(event, notes=_left_unsaved(failure))
    if _left_its_checkpoint(failure, attempt) and not failure.same_as(trial.failure):
        return AttemptEnd(e.Errored(retries_left=True), {"failure": failure})
    if outcome in (Outcome.FAILED, Outcome.TIMEOUT):
        return _logged(trial, attempt, _errored(trial, outcome, failure, progress, max_restarts), matched)
    if outcome is Outcome.RELEASED:
        # The engine or a user signalled the launcher, or it got no instruction at its target.
        cause = f": {failure.message}" if failure is not None and failure.consequence else ""
        known = bool(cause) or trial.until is None
        notes = (f"attempt {attempt.number} was preempted{cause or ' by a signal'}",) if known else ()
        return AttemptEnd(e.Released(held=bool(trial.holds)), {"failures": 0}, notes, left=True)
    return AttemptEnd(e.Lost(), {"failures": 0} if progress else {})


def _errored(trial: Trial, outcome: Outcome, failure: Failure | None, progress: bool, max_restarts: int) -> AttemptEnd:
    if failure is not None and failure.invalid:
        return AttemptEnd(e.Invalid(), {"failure": failure})
    counted = not (progress and outcome is Outcome.TIMEOUT)
    failures = (0 if progress else trial.failures) + counted
    changes = {"failures": failures, "failure": failure}
    if would_repeat(failure, trial.failure, progress):
        note = _repeated(failure, failure.same_as(trial.failure))
        return AttemptEnd(e.Errored(retries_left=False), changes, (note,))
    if failures <= max_restarts:
        return AttemptEnd(e.Errored(retries_left=True), changes)
    if of_storage(failure):
        return AttemptEnd(e.Errored(retries_left=True), changes, (_paused(trial, failure),), pause=True)
    return AttemptEnd(e.Errored(retries_left=False), changes, (_exhausted(failures, max_restarts),))


def _left_its_checkpoint(failure: Failure | None, attempt: Attempt) -> TypeGuard[Failure]:
    """Return True if a program could not go on from its checkpoint, which was then set aside."""
    return failure is not None and failure.type == NOT_SAVED and attempt.resume_from is not None


def _logged(trial: Trial, attempt: Attempt, plain: AttemptEnd, matched: Sequence[LogMatch]) -> AttemptEnd:
    """Return the consequence `plain`, changed by the log policies that matched: excluded nodes, cancelled retries."""
    ranks = range(sum(len(share.slots) for share in attempt.actual))
    matched = [match for match in matched if match.rank in ranks]  # the user can write the file of matches
    excluding = [match for match in matched if match.action == "exclude_node"]
    if excluding:
        nodes = {node_of(attempt.actual, match.rank): match for match in excluding}
        changes = plain.changes | {"excluded": trial.excluded | nodes.keys()}
        notes = (*plain.notes, *(_excluded(node, match) for node, match in nodes.items()))
        plain = replace(plain, changes=changes, notes=notes)
    final = next((match for match in matched if match.action == "cancel_retries"), None)
    if final is None or not isinstance(plain.event, e.Errored) or of_storage(plain.changes["failure"]):
        return plain
    failure = plain.changes["failure"] or Failure(rank=final.rank, type="Failed", message="the gang failed")
    message = f"{failure.message}{' ' if failure.message else ''}({_cancelled(final)})"
    changes = plain.changes | {"failure": failure.model_copy(update={"message": message})}
    return replace(plain, event=e.Errored(retries_left=False), changes=changes)


def _repeated(failure: Failure, twice: bool) -> str:
    if failure.type == InvalidDefinition.__name__:
        return "not tried again: the definition must be changed first"
    if failure.type == NotFinite.__name__:
        return "not tried again: the same steps would end with the same error"
    if failure.type == USAGE_ERROR:
        return "not tried again: the program refuses its command line"
    if not twice:
        return "not tried again: the error follows from the program alone"
    place = "before the first step" if failure.step is None else f"at step {failure.step}"
    return f"not tried again: the same error {place} twice in a row"


def _paused(trial: Trial, failure: Failure) -> str:
    return f"paused: {failure.message}, then resume #{trial.experiment}"


def _left_unsaved(failure: Failure | None) -> tuple[str, ...]:
    """Return a note if a gang that was requested to exit could not save its newest steps; else an empty tuple."""
    return (f"its newest steps are not saved: {failure.message}",) if unsaved(failure) else ()


def _exhausted(failures: int, max_restarts: int) -> str:
    if max_restarts == 0:
        return "not tried again: --max-restarts 0"
    return f"not tried again: {failures} attempts without progress (--max-restarts {max_restarts})"


def _excluded(node: str, match: LogMatch) -> str:
    return f"node {node} is left out from now on: rank {match.rank} said {match.line!r} (--on-log {match.pattern!r})"


def _cancelled(match: LogMatch) -> str:
    return f"not tried again: rank {match.rank} said {match.line!r}, and --on-log {match.pattern!r} cancels retries"
