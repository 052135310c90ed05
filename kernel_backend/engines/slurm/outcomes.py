"""Derive from the final state of a Slurm job how its gang ended: pure functions."""

from __future__ import annotations

from kernel_backend.engines.slurm.parse import ENDED
from kernel_backend.engines.submission import by_signal
from kernel_backend.model.node_faults import FaultKind
from kernel_backend.model.reports import AttemptResult, NodeProblem
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import OUT_OF_MEMORY, Failure

SETTLE_S = 5.0  # time for Slurm to report why it killed ranks, after a launcher has recorded their end
COMPLETING_S = 60.0  # time for a job that Slurm ends to leave its nodes
# Job states that explain why a rank was killed by a signal; the launcher sees only the signal.
_EXPLAIN = frozenset({"TIMEOUT", "DEADLINE", "PREEMPTED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "CANCELLED"})
NODE_LOST = ("NODE_FAIL", "BOOT_FAIL")


def node_problems(kind: FaultKind, reason: str, nodes: str) -> tuple[NodeProblem, ...]:
    """Return a problem of kind `kind` for the node of a job, as a tuple; () if the job has several nodes.

    For several nodes, Slurm does not say which of them has the fault. `nodes` is Slurm's text, such as `n[1-2]`.

    Examples
    --------
    >>> node_problems("lost", "Slurm lost it", "n[1-2]")
    ()
    """
    several = not nodes or any(letter in nodes for letter in "[,")
    return () if several else (NodeProblem(node=nodes, kind=kind, reason=reason),)


def explained(result: AttemptResult, state: str) -> bool:
    """Return whether the state of a gang's job explains why a rank was killed by a signal, such as OUT_OF_MEMORY.

    The state then decides the outcome, rather than the launcher's result, which shows only the signal.
    """
    return by_signal(result) and state in _EXPLAIN


def contested(result: AttemptResult, state: str, asked_at: float, now: float) -> bool:
    """Return whether Slurm may soon report that it killed the ranks itself, so that `result` is not final yet.

    `result` is the launcher's result. `state` is the state of the job at time `asked_at`, "" if Slurm did not list it.
    Times are in seconds since the epoch.
    """
    if not by_signal(result) or state in ENDED:
        return False
    age = now - result.ended_at
    if state == "COMPLETING":
        return age < COMPLETING_S
    # If Slurm had sent the SIGKILL, the job would not still run; before a preemption Slurm sends SIGTERM.
    runs_on = state == "RUNNING" and asked_at > result.ended_at
    return age < SETTLE_S and not (runs_on and result.failure is not None and result.failure.type != "SIGTERM")


def job_outcome(state: str, began: bool, cancelled: str, job: str, nodes: str) -> tuple[Outcome, Failure | None]:
    """Return how a gang ended according to the final state of its job: the outcome, and the failure or None.

    This is used if there is no launcher's result, or if the state explains it. `began` says whether a launcher had
    started, and `cancelled` how Daylight cancelled the job (`release` or `kill`), "" if it did not. `job` and `nodes`
    are the job's id and nodes, for messages.
    """
    if state in ("TIMEOUT", "DEADLINE"):
        message = f"Slurm ended job {job} at its time limit: set a longer one with --time in the pool's `extra`"
        return Outcome.TIMEOUT, Failure(rank=0, type="TimeLimit", message=message)
    if state == "OUT_OF_MEMORY":
        message = f"Slurm ended job {job}, which used more memory than it had: raise the pool's `memory_per_slot`"
        return Outcome.FAILED, Failure(rank=0, type=OUT_OF_MEMORY, message=message)
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
