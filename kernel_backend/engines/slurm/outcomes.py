"""Derive how a gang ended from the final state of its Slurm job: pure functions."""

from __future__ import annotations

from kernel_backend.engines.slurm.parse import ENDED
from kernel_backend.engines.submission import by_signal
from kernel_backend.model.node_faults import FaultKind
from kernel_backend.model.reports import AttemptResult, NodeProblem
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure

SETTLE_S = 5.0  # time for Slurm to report why it killed ranks, after a launcher has recorded their end
COMPLETING_S = 60.0  # time for a job that Slurm ends to leave its nodes
# Job states that explain why a rank was killed by a signal; the launcher sees only the signal.
_EXPLAIN = frozenset({"TIMEOUT", "DEADLINE", "PREEMPTED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "CANCELLED"})
NODE_LOST = ("NODE_FAIL", "BOOT_FAIL")


def node_problems(kind: FaultKind, reason: str, nodes: str) -> tuple[NodeProblem, ...]:
    """Return the problem of a job's only node; () for several, as Slurm does not say which of them has it.

    Examples
    --------
    >>> node_problems("lost", "Slurm lost it", "n[1-2]")
    ()
    """
    several = not nodes or any(letter in nodes for letter in "[,")
    return () if several else (NodeProblem(node=nodes, kind=kind, reason=reason),)


def explained(result: AttemptResult, state: str) -> bool:
    """Return whether the state of a job explains why ranks were killed, so that it overrules the launcher's record."""
    return by_signal(result) and state in _EXPLAIN


def contested(result: AttemptResult, state: str, asked_at: float, now: float) -> bool:
    """Return whether Slurm may still report that it has itself killed the ranks, so that their end is not yet decided.

    `state` is the job's state at time `asked_at`, "" if Slurm did not list the job then.
    """
    if not by_signal(result) or state in ENDED:
        return False
    age = now - result.ended_at
    if state == "COMPLETING":
        return age < COMPLETING_S
    # If Slurm had sent the SIGKILL, the job would not still run; before a preemption Slurm sends SIGTERM.
    runs_on = state == "RUNNING" and asked_at > result.ended_at
    return age < SETTLE_S and not (runs_on and result.failure is not None and result.failure.type == "SIGKILL")


def job_outcome(state: str, began: bool, cancelled: str, job: str, nodes: str) -> tuple[Outcome, Failure | None]:
    """Return how a gang ended by the final state of its job, if the launcher's record is missing or overruled.

    `began` is True if a launcher had started; `cancelled` is why Daylight cancelled the job, "" if it did not. `job`
    and `nodes` are the job's id and nodes, for messages.
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
    if state in NODE_LOST:
        message = f"Slurm lost a node of {nodes or 'the gang'} ({state}, job {job})"
        return Outcome.LOST, Failure(rank=0, type="NodeLost", message=message, consequence=True)
    if state == "PREEMPTED":
        message = f"Slurm preempted job {job}"
        return Outcome.LOST, Failure(rank=0, type="Preempted", message=message, consequence=True)
    return Outcome.LOST, None
