"""Test when, and in which order, gangs that sbatch did not accept are submitted again."""

from __future__ import annotations

from kernel_backend.engines.slurm.controller import Queue
from kernel_backend.engines.slurm.handover import DelayedGangs, RetryTimer, in_order
from kernel_backend.engines.slurm.parse import SlurmJob
from kernel_backend.engines.slurm.submission import Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.states import Outcome


def queue(*states: str, problem: str = "") -> Queue:
    jobs = {str(nth): SlurmJob(str(nth), state, "None", "", "N/A", "") for nth, state in enumerate(states)}
    return Queue(jobs, 1.0, problem)


def test_a_refused_gang_is_tried_again_once_fewer_jobs_are_in_the_queue():
    timer = RetryTimer()
    assert timer.due(queue("RUNNING", "PENDING"))
    timer.tried(queue("RUNNING", "PENDING"))
    assert not timer.due(queue("RUNNING", "PENDING"))
    assert not timer.due(queue("RUNNING", "RUNNING", "COMPLETED"))
    assert timer.due(queue("RUNNING", "COMPLETED"))


def test_nothing_is_tried_while_the_controller_is_silent_and_all_at_once_when_it_answers():
    timer = RetryTimer()
    timer.tried(queue("RUNNING"))
    assert not timer.due(queue("RUNNING", problem="no answer"))
    assert timer.due(queue("RUNNING"))


def test_gangs_wait_in_the_order_of_their_submission_and_a_new_one_waits_behind_them():
    sent = Submission(comment="", at=1.0)
    known = {
        AttemptId(1, 1, 1): sent.model_copy(update={"at": 3.0, "delay": "late"}),
        AttemptId(2, 1, 1): sent.model_copy(update={"at": 2.0, "delay": "early"}),
        AttemptId(3, 1, 1): sent.model_copy(update={"delay": "once", "job": "7"}),
        AttemptId(4, 1, 1): sent.model_copy(update={"delay": "once"}).ended(Outcome.RELEASED),
        AttemptId(5, 1, 1): sent,
        AttemptId(6, 1, 1): None,
    }
    assert in_order(known) == [AttemptId(2, 1, 1), AttemptId(1, 1, 1)]
    assert DelayedGangs.reason(lambda: known) == "early"
    cancelled = known | {AttemptId(2, 1, 1): sent.model_copy(update={"delay": "early", "cancelled": "kill"})}
    assert DelayedGangs.reason(lambda: cancelled) == "late"
    assert DelayedGangs.reason(dict) == ""
