"""How long a trial rests before it is tried again: a function of it and of its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Attempt, ScheduledTrial, checkpoint_order

LONGEST_S = 60.0
AT_ONCE_S = 60.0  # what is lost sooner after its start may have been doomed from the start


def rest(trial: ScheduledTrial, attempts: Sequence[Attempt]) -> float:
    """Seconds from the end of the newest of these attempts to the beginning of the next.

    A single crash costs no time. What fails again at once (a full disk, a store that cannot be reached) gets some to
    recover, and the retries are not used up within a minute. What always takes its launcher along (a limit of memory,
    a full disk in the attempt's folder) counts against no limit of restarts, and so must not be started without pause.
    """
    return pause(max(trial.failures, lost_at_once(trial, attempts)))


def pause(times: int) -> float:
    """The rest after so many attempts in vain: 0, 0, 2, 4, 8 ... 60."""
    return 0.0 if times < 2 else min(LONGEST_S, 2.0 ** min(times - 1, 10))


def lost_at_once(trial: ScheduledTrial, attempts: Sequence[Attempt]) -> int:
    """How many of the newest attempts in a row were lost within a minute, and had committed nothing."""
    committer = checkpoint_order(trial.checkpoint)[1] if trial.checkpoint else 0
    in_vain = takewhile(lambda attempt: attempt.number > committer and _lost_at_once(attempt), reversed(attempts))
    return len(list(in_vain))


def _lost_at_once(attempt: Attempt) -> bool:
    if attempt.outcome is not Outcome.LOST or attempt.ended_at is None:
        return False
    return attempt.ended_at - attempt.created_at < AT_ONCE_S
