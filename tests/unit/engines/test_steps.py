"""Read the end of a gang that was a step from what Slurm prints, since Slurm keeps states of jobs alone."""

from __future__ import annotations

import pytest

from kernel_backend.engines.slurm.parse import SlurmJob
from kernel_backend.engines.slurm.steps import explanation, out_of_memory
from kernel_backend.model.states import Outcome

# As Slurm 22.05 prints them.
CGROUP = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.2. Some of the step tasks have been OOM Killed.\n"
SRUN = "2026-11-27 05:10:00 rank 0 begins\nsrun: error: n1: task 0: Out Of Memory\n"
LIMIT = "slurmstepd-n1: error: StepId=7.2 exceeded memory limit (2048 > 1024), being killed\n"


def job(state: str) -> SlurmJob:
    return SlurmJob("7", state, "None", "n1", "N/A", "c")


@pytest.mark.parametrize("log", [CGROUP, SRUN, LIMIT])
def test_a_step_that_slurm_ended_for_its_memory_is_told_apart_while_its_allocation_goes_on(log):
    outcome, failure = explanation(log, job("RUNNING"), "")
    assert (outcome, failure.type) == (Outcome.FAILED, "OutOfMemory")
    assert "raise the pool's `memory_per_slot`" in failure.message


def test_what_a_program_says_about_memory_is_not_slurms_word():
    assert not out_of_memory(
        "torch.OutOfMemoryError: CUDA out of memory\nOut Of Memory\nsrun: error: n1: task 0: Killed\n"
    )


@pytest.mark.parametrize(
    ("state", "cancelled", "outcome", "kind"),
    [
        ("TIMEOUT", "", Outcome.TIMEOUT, "TimeLimit"),
        ("NODE_FAIL", "", Outcome.LOST, "NodeLost"),
        ("PREEMPTED", "", Outcome.LOST, "Preempted"),
        ("CANCELLED", "", Outcome.LOST, "Cancelled"),
    ],
)
def test_the_end_of_its_allocation_explains_the_end_of_a_gang(state, cancelled, outcome, kind):
    found, failure = explanation("", job(state), cancelled)
    assert (found, failure.type) == (outcome, kind)


def test_an_allocation_that_goes_on_explains_nothing():
    assert explanation("", job("RUNNING"), "") is None
    assert explanation("", None, "") is None
