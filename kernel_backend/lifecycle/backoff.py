"""Compute the backoff of a trial before its next attempt, from the trial and its past attempts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Attempt, ScheduledTrial, checkpoint_order

LONGEST_S = 60.0
AT_ONCE_S = 60.0  # an attempt lost sooner than this after its start counts as lost at once


def rest(trial: ScheduledTrial, attempts: Sequence[Attempt]) -> float:
    """Return the backoff of a trial: how many seconds after the end of its newest attempt the next one may start.

    A single crash causes no delay. After a failure that repeats immediately (a full disk, unreachable storage), the
    delay leaves time to recover, so that retries are not used up within a minute. Causes that also kill the launcher (a
    memory limit, a full disk in the attempt's folder) use up no retries, and must not be retried without a pause.
    """
    return pause(max(trial.failures, lost_at_once(trial, attempts)))


def pause(times: int) -> float:
    """Return the backoff in seconds after `times` failed attempts: 0, 0, 2, 4, 8 ... 60."""
    return 0.0 if times < 2 else min(LONGEST_S, 2.0 ** min(times - 1, 10))


def lost_at_once(trial: ScheduledTrial, attempts: Sequence[Attempt]) -> int:
    """Return how many of the newest attempts in a row were lost within a minute without committing a checkpoint."""
    committer = checkpoint_order(trial.checkpoint)[1] if trial.checkpoint else 0
    in_vain = takewhile(lambda attempt: attempt.number > committer and _lost_at_once(attempt), reversed(attempts))
    return len(list(in_vain))


def _lost_at_once(attempt: Attempt) -> bool:
    if attempt.outcome is not Outcome.LOST or attempt.ended_at is None:
        return False
    return attempt.ended_at - (attempt.granted_at or attempt.created_at) < AT_ONCE_S
