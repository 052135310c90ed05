"""Derive how a gang ended that ran as a step of a Slurm job kept for several trials: pure functions."""

from __future__ import annotations

import re

from kernel_backend.engines.slurm.outcomes import job_outcome
from kernel_backend.engines.slurm.parse import SlurmJob
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure

# Lines of srun and slurmstepd for a step that exceeded its memory; squeue has a state only for the whole job.
_MEMORY = re.compile(
    r"^(?:srun|slurmstepd\S*): error: .*(?:\boom.kill|Out Of Memory|OOM Killed|[Ee]xceeded \S*\s*memory limit)",
    re.MULTILINE,
)
_ENDS_STEPS = frozenset({"TIMEOUT", "DEADLINE", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "CANCELLED"})


def out_of_memory(log: str) -> bool:
    """Return whether the launcher's log says that Slurm killed the step because it used too much memory.

    Examples
    --------
    >>> out_of_memory("slurmstepd: error: Detected 1 oom_kill event in StepId=7.2. Some of the step tasks ...")
    True
    >>> out_of_memory("RuntimeError: CUDA out of memory")
    False
    """
    return bool(_MEMORY.search(log))


def explanation(log: str, job: SlurmJob | None, cancelled: str) -> tuple[Outcome, Failure | None] | None:
    """Return the outcome and the failure of a step that Slurm itself has ended; None if Slurm did not end it.

    `log` is the text of the launcher's log, and `job` the Slurm job that is the allocation. `cancelled` says how
    Daylight cancelled the gang, "" if it did not.
    """
    if out_of_memory(log):
        state = "OUT_OF_MEMORY"
    elif job is not None and job.state in _ENDS_STEPS:
        state = job.state
    else:
        return None
    name, nodes = (job.id, job.nodes) if job is not None else ("", "")
    if state == "CANCELLED" and not cancelled:
        message = f"its allocation (job {name}) was cancelled in Slurm"
        return Outcome.LOST, Failure(rank=0, type="Cancelled", message=message, consequence=True)
    return job_outcome(state, True, cancelled, name, nodes)


def withdrawn(cancelled: str) -> Outcome:
    """Return the outcome of a gang that was cancelled before it started, by `cancelled`: `release` or `kill`."""
    return Outcome.RELEASED if cancelled == "release" else Outcome.KILLED


def own_outcome(partial: AttemptResult | None) -> bool:
    """Return whether the result of a part of the launchers has the failure of a rank that failed by itself.

    Failures of ranks that ended only because another rank had ended do not count.
    """
    return partial is not None and partial.failure is not None and not partial.failure.consequence
