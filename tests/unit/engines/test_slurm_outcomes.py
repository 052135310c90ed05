"""Test that the end of a job decides its gang's outcome if there is no launcher's record."""

from __future__ import annotations

import pytest

from kernel_backend.engines.slurm.outcomes import explained, job_outcome
from kernel_backend.model.reports import AttemptResult
from kernel_backend.model.states import Outcome
from kernel_backend.model.trial import Failure


def record(outcome: str = "failed", kind: str = "SIGKILL") -> AttemptResult:
    failure = Failure(rank=0, type=kind, message="rank 0 ended")
    return AttemptResult(outcome=outcome, exit_codes=(-9,), failure=failure, ended_at=1.0)


@pytest.mark.parametrize(
    ("state", "began", "cancelled", "outcome", "kind"),
    [
        ("TIMEOUT", True, "", Outcome.TIMEOUT, "TimeLimit"),
        ("DEADLINE", False, "", Outcome.TIMEOUT, "TimeLimit"),
        ("OUT_OF_MEMORY", True, "", Outcome.FAILED, "OutOfMemory"),
        ("NODE_FAIL", True, "", Outcome.LOST, "NodeLost"),
        ("BOOT_FAIL", False, "", Outcome.LOST, "NodeLost"),
        ("PREEMPTED", True, "", Outcome.LOST, "Preempted"),
        ("CANCELLED", True, "", Outcome.KILLED, "Cancelled"),
        ("CANCELLED", True, "kill", Outcome.LOST, None),
        ("CANCELLED", False, "release", Outcome.RELEASED, None),
        ("CANCELLED", False, "kill", Outcome.KILLED, None),
        ("FAILED", True, "", Outcome.LOST, None),  # its launcher was killed
    ],
)
def test_a_jobs_state_is_an_outcome(state, began, cancelled, outcome, kind):
    found, failure = job_outcome(state, began, cancelled, "7", "n1")
    assert (found, failure and failure.type) == (outcome, kind)


def test_slurms_word_explains_only_ranks_that_were_killed():
    assert explained(record(), "TIMEOUT")
    assert explained(record(kind="SIGTERM"), "PREEMPTED")
    assert not explained(record(), "COMPLETED")
    assert not explained(record(kind="ValueError"), "TIMEOUT")
    assert not explained(record(outcome="released"), "PREEMPTED")
