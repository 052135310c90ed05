"""Test how a gang's job and its end are found in the output of sacct."""

from __future__ import annotations

from datetime import datetime

import pytest

from kernel_backend.engines.slurm.accounting import ended_job, parse_sacct
from kernel_backend.engines.slurm.submission import Submission
from kernel_backend.model.ids import AttemptId

KEY = AttemptId(12, 1, 1)
AT = datetime(2026, 11, 27, 4, 43, 56).timestamp()
SENT = Submission(comment="daylight:s:gpu:12.1-1:0", at=AT - 1, job="7")
ROW = "7|daylight-12.1-1|CANCELLED by 1000|n[1-2]|2026-11-27T04:43:56|"


def test_the_state_of_a_cancelled_job_is_without_the_user():
    job = ended_job(KEY, SENT, parse_sacct(f"slurm says hello\n{ROW}\n")["7"])
    assert job is not None
    assert (job.id, job.state, job.nodes, job.comment) == ("7", "CANCELLED", "n[1-2]", SENT.comment)


@pytest.mark.parametrize(
    "row",
    [
        ROW.replace("CANCELLED by 1000", "RUNNING"),
        ROW.replace("12.1-1", "12.1-2"),  # another gang's
        ROW.replace("2026-", "2025-"),  # of a Slurm that has lost its state since
        ROW + "daylight:other:gpu:12.1-1:0",  # another service's, at a site that stores comments
    ],
)
def test_another_job_of_the_same_id_is_none(row):
    assert ended_job(KEY, SENT, parse_sacct(row)["7"]) is None


def test_a_job_that_sacct_does_not_know_has_not_ended():
    assert ended_job(KEY, SENT, parse_sacct("").get("7")) is None
