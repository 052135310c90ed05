"""Derive a gang's outcome from the state in which its job ended: pure functions."""

from __future__ import annotations

from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure

# States that explain why a rank was killed by a signal: the launcher sees the signal only.
_EXPLAIN = frozenset({"TIMEOUT", "DEADLINE", "PREEMPTED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "CANCELLED"})


def explained(result: AttemptResult, state: str) -> bool:
    """Return whether Slurm ended the ranks that a launcher's record calls killed, so that Slurm's word counts."""
    return by_signal(result) and state in _EXPLAIN


def by_signal(result: AttemptResult) -> bool:
    """Return whether a launcher recorded that a rank was killed by a signal, the sender of which it cannot know."""
    failure = result.failure
    return result.outcome == "failed" and failure is not None and failure.type in ("SIGKILL", "SIGTERM")


def job_outcome(state: str, began: bool, cancelled: str, job: str, nodes: str) -> tuple[Outcome, Failure | None]:
    """Return the outcome of a job that ended in a state, without a launcher's record or against it.

    `began` is True if a launcher had started; `cancelled` says for what we ourselves have cancelled the job.
    """
    if state in ("TIMEOUT", "DEADLINE"):
        message = f"Slurm ended job {job} at its time limit: set a longer one with --time in the pool's `extra`"
        return Outcome.TIMEOUT, Failure(rank=0, type="TimeLimit", message=message)
    if state == "OUT_OF_MEMORY":
        message = f"Slurm ended job {job}, which used more memory than it had: raise the pool's `memory_per_slot`"
        return Outcome.FAILED, Failure(rank=0, type="OutOfMemory", message=message)
    if state == "CANCELLED" and not began:
        return (Outcome.RELEASED if cancelled == "release" else Outcome.KILLED), None
    if state == "CANCELLED" and not cancelled:
        message = f"job {job} was cancelled in Slurm"
        return Outcome.KILLED, Failure(rank=0, type="Cancelled", message=message, consequence=True)
    if state in ("NODE_FAIL", "BOOT_FAIL"):
        message = f"Slurm lost a node of {nodes or 'the gang'} ({state}, job {job})"
        return Outcome.LOST, Failure(rank=0, type="NodeLost", message=message, consequence=True)
    if state == "PREEMPTED":
        message = f"Slurm preempted job {job}"
        return Outcome.LOST, Failure(rank=0, type="Preempted", message=message, consequence=True)
    return Outcome.LOST, None
