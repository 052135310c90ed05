"""Test how an attempt's end, and an experiment's state, change the state of a trial."""

from __future__ import annotations

from collections import Counter

import pytest

from kernel_backend.lifecycle.outcomes import attempt_end
from kernel_backend.lifecycle.reconcile import Action, reconcile, terminal_event
from kernel_backend.model import events as e
from kernel_backend.model.reports import LogMatch
from kernel_backend.model.states import ExperimentState, Hold, Outcome, TrialState, advance
from kernel_backend.model.trial import NOT_SAVED, Failure
from tests.support.builders import attempt, share, trial, user_error

KILLED = Failure(rank=1, type="SIGKILL", message="rank 1 was ended by SIGKILL")
HUNG = Failure(rank=1, type="Hang", message="rank 1 made no progress", step=7, traceback="Thread 0x1 ...")
UNSAVED = Failure(
    rank=0,
    type="CheckpointFailed",
    message="the last checkpoint, at step 400, could not be written: No space left on device",
    step=401,
    traceback="Traceback ...",
)
UNREACHABLE = UNSAVED.model_copy(
    update={
        "type": "PlaceUnavailable",
        "message": "the checkpoints in s3://runs/1 cannot be reached: no route",
        "step": 1,
    }
)
OUT_OF_MEMORY = LogMatch(
    pattern="CUDA out of memory", action="cancel_retries", rank=1, line="OutOfMemoryError: CUDA out of memory."
)
ECC = LogMatch(pattern="ECC error", action="exclude_node", rank=2, line="uncorrectable ECC error on GPU 3")


def follow(trial_before, outcome, failure=None, progress=False, max_restarts=5):
    """Return the trial's state after this end, and the changed fields."""
    what = attempt_end(trial_before, attempt(), outcome, failure, progress, max_restarts)
    return advance(trial_before.state, what.event), what.changes


def test_a_finished_gang_completes_its_trial():
    assert follow(trial(), Outcome.OK)[0] is TrialState.COMPLETED


def test_a_killed_rank_is_retried_and_counted():
    assert follow(trial(failures=2), Outcome.FAILED, KILLED) == (
        TrialState.QUEUED,
        {"failures": 3, "failure": KILLED},
    )


def test_progress_resets_the_count_of_failures():
    assert follow(trial(failures=5), Outcome.FAILED, KILLED, progress=True)[1]["failures"] == 1


def test_the_last_retry_without_progress_fails_the_trial():
    assert follow(trial(failures=5), Outcome.FAILED, KILLED)[0] is TrialState.FAILED


def test_a_checkpoint_from_which_a_program_could_not_go_on_never_ends_a_trial():
    left = Failure(rank=0, type=NOT_SAVED, message="rng could not be saved", step=3, traceback="Traceback")
    resumed = attempt().model_copy(update={"resume_from": "5-1"})
    end = attempt_end(trial(failures=2), resumed, Outcome.FAILED, left, False, max_restarts=0)
    assert (end.event, end.changes) == (e.Errored(retries_left=True), {"failure": left})
    again = attempt_end(trial(failure=left), resumed, Outcome.FAILED, left, False, max_restarts=0)
    assert again.final  # the same error at the same step is not the checkpoint's
    assert attempt_end(trial(), attempt(), Outcome.FAILED, left, False, max_restarts=0).final


def test_no_restarts_means_the_first_error_is_the_last():
    assert follow(trial(), Outcome.FAILED, KILLED, max_restarts=0)[0] is TrialState.FAILED


def test_the_same_error_at_the_same_step_twice_ends_it_early():
    before = trial(failures=1, failure=user_error(step=7))
    assert follow(before, Outcome.FAILED, user_error(step=7, rank=1))[0] is TrialState.FAILED
    assert follow(before, Outcome.FAILED, user_error(step=8))[0] is TrialState.QUEUED


@pytest.mark.parametrize(
    ("one", "next", "same"),
    [
        ("no file '/h/attempts/12.3-1/code/a.json'", "no file '/h/attempts/12.3-2/code/a.json'", True),
        ("<Net object at 0x7f3a10c2d5e0>", "<Net object at 0x7f9bb0c2d5e0>", True),
        ("no file '/tmp/tmpk3_x0aqz/a'", "no file '/tmp/tmp81bvnm2c/a'", True),
        ("worker (pid 4711) is gone", "worker (pid 4712) is gone", True),
        ("no file '/h/attempts/12.3-1/code/a.json'", "no file '/h/attempts/12.3-2/code/b.json'", False),
        ("size 12", "size 13", False),
    ],
)
def test_what_an_error_says_of_its_attempt_makes_it_no_other_error(one, next, same):
    ended, _ = follow(trial(failure=user_error(message=one)), Outcome.FAILED, user_error(message=next))
    assert ended is (TrialState.FAILED if same else TrialState.QUEUED)


def notes(before, failure, progress=False, max_restarts=5):
    return attempt_end(before, attempt(), Outcome.FAILED, failure, progress, max_restarts).notes


def test_why_there_is_no_further_try_is_said():
    same, early = user_error(step=7), user_error(step=None)
    assert notes(trial(failure=same), same) == ("not tried again: the same error at step 7 twice in a row",)
    assert notes(trial(failure=early), early) == (
        "not tried again: the same error before the first step twice in a row",
    )
    assert notes(trial(failures=5), KILLED) == ("not tried again: 6 attempts without progress (--max-restarts 5)",)
    assert notes(trial(), KILLED, progress=True, max_restarts=0) == ("not tried again: --max-restarts 0",)
    assert notes(trial(failures=4), KILLED) == ()


def test_an_excluded_node_and_the_last_try_are_both_said():
    gang = (share((0, 1), "a"), share((0,), "b"))
    what = attempt_end(trial(), attempt(placement=gang), Outcome.FAILED, KILLED, False, 0, (ECC,))
    assert [note.split(":")[0] for note in what.notes] == ["not tried again", "node b is left out from now on"]


def test_who_was_asked_to_leave_by_others_says_so_and_who_was_asked_here_does_not():
    said = attempt_end(trial(), attempt(4), Outcome.RELEASED, None, False, 5).notes
    assert said == ("attempt 4 was preempted by a signal",)
    told = Failure(rank=0, type="Preempted", message="the end of node n1 is announced", consequence=True)
    said = attempt_end(trial(until=3), attempt(4), Outcome.RELEASED, told, False, 5).notes
    assert said == ("attempt 4 was preempted: the end of node n1 is announced",)
    nobody_answered = attempt_end(trial(until=3), attempt(4), Outcome.RELEASED, None, False, 5)
    assert (nobody_answered.event, nobody_answered.notes) == (e.Released(held=False), ())
    assert attempt_end(trial(TrialState.RELEASING), attempt(4), Outcome.RELEASED, None, False, 5).notes == ()


def test_a_loss_that_is_not_finite_is_not_tried_again():
    """In a search the trial fails, and counts as the worst at its target."""
    not_finite = user_error().model_copy(update={"type": "NotFinite"})
    assert follow(trial(), Outcome.FAILED, not_finite, progress=True)[0] is TrialState.FAILED
    (note,) = attempt_end(trial(), attempt(), Outcome.FAILED, not_finite, True, 5).notes
    assert note == "not tried again: the same steps would end with the same error"


def test_the_same_error_of_the_users_code_twice_before_the_first_step_ends_it_too():
    before = trial(failures=1, failure=user_error(step=None))
    assert follow(before, Outcome.FAILED, user_error(step=None))[0] is TrialState.FAILED


def test_a_store_that_cannot_be_reached_at_the_start_is_tried_as_often_as_any_fault():
    away = user_error(step=None, message="s3://runs/1: the network is down").model_copy(update={"frames": ()})
    assert follow(trial(failures=1, failure=away), Outcome.FAILED, away)[0] is TrialState.QUEUED
    assert follow(trial(failures=5, failure=away), Outcome.FAILED, away)[0] is TrialState.FAILED


REFUSED = Failure(rank=0, type="UsageError", message="train.py: error: unrecognized arguments: --beta")
ENDED = Failure(rank=0, type="ProgramFailed", message="./solve ended with exit code 4; its last line: no such mesh")


def test_a_program_that_refuses_its_command_line_fails_at_once():
    assert follow(trial(), Outcome.FAILED, REFUSED)[0] is TrialState.FAILED
    assert notes(trial(), REFUSED) == ("not tried again: the program refuses its command line",)


def test_a_program_that_ends_twice_in_the_same_way_without_progress_fails():
    before = trial(failures=1, failure=ENDED)
    assert follow(before, Outcome.FAILED, ENDED)[0] is TrialState.FAILED
    assert follow(before, Outcome.FAILED, ENDED, progress=True)[0] is TrialState.QUEUED
    other = ENDED.model_copy(update={"message": "./solve ended with exit code 4; its last line: no licence"})
    assert follow(before, Outcome.FAILED, other)[0] is TrialState.QUEUED


@pytest.mark.parametrize("failure", [UNSAVED, UNREACHABLE])
def test_storage_that_cannot_be_written_or_reached_is_tried_again_like_any_fault(failure):
    for failures in range(5):
        what = attempt_end(trial(failures=failures, failure=failure), attempt(), Outcome.FAILED, failure, False, 5)
        assert advance(TrialState.RUNNING, what.event) is TrialState.QUEUED
        assert (what.changes["failures"], what.notes, what.pause) == (failures + 1, (), False)


@pytest.mark.parametrize("failure", [UNSAVED, UNREACHABLE])
@pytest.mark.parametrize(("failures", "max_restarts"), [(5, 5), (0, 0)])
def test_when_its_retries_are_used_up_the_experiment_is_paused_and_the_trial_never_fails(
    failure, failures, max_restarts
):
    before = trial(experiment=12, failures=failures, failure=failure)
    what = attempt_end(before, attempt(), Outcome.FAILED, failure, False, max_restarts)
    assert advance(TrialState.RUNNING, what.event) is TrialState.QUEUED
    assert what.pause
    assert what.notes == (f"paused: {failure.message}, then resume #12",)
    queued = trial(TrialState.QUEUED, **what.changes)
    held = reconcile(ExperimentState.PAUSED, queued, feasible=True)
    assert held == Action(e.Held(), {"holds": frozenset({Hold.USER})})
    paused = queued.model_copy(update={"state": TrialState.PAUSED, **held.changes})
    resumed = reconcile(ExperimentState.ACTIVE, paused, feasible=True)
    assert resumed == Action(
        e.Lifted(), {"holds": frozenset(), "excluded": frozenset(), "failures": 0, "failure": None}
    )


def test_an_invalid_definition_is_not_tried_again():
    invalid = user_error().model_copy(update={"type": "InvalidDefinition", "frames": (), "step": None})
    what = attempt_end(trial(), attempt(), Outcome.FAILED, invalid, False, 5)
    assert advance(TrialState.RUNNING, what.event) is TrialState.FAILED
    assert what.notes == ("not tried again: the definition must be changed first",)


def test_no_other_failure_pauses():
    for failure in (KILLED, HUNG, user_error(), None):
        assert not attempt_end(trial(failures=9), attempt(), Outcome.FAILED, failure, False, 5).pause


def test_no_log_line_fails_a_trial_whose_work_only_waits_to_be_saved():
    plain = attempt_end(trial(), attempt(), Outcome.FAILED, UNSAVED, False, 0)
    assert attempt_end(trial(), attempt(), Outcome.FAILED, UNSAVED, False, 0, (OUT_OF_MEMORY,)) == plain


@pytest.mark.parametrize("state", [TrialState.RELEASING, TrialState.STOPPING])
def test_who_leaves_when_asked_and_cannot_save_its_steps_says_so(state):
    assert attempt_end(trial(state), attempt(), Outcome.FAILED, UNSAVED, False, 5).notes == (
        "its newest steps are not saved: " + UNSAVED.message,
    )
    assert attempt_end(trial(state), attempt(), Outcome.FAILED, KILLED, False, 5).notes == ()


def test_two_kills_in_a_row_are_no_proof_of_a_fault_in_the_code():
    assert follow(trial(failures=1, failure=KILLED), Outcome.FAILED, KILLED)[0] is TrialState.QUEUED


def test_two_hangs_at_the_same_step_are_no_proof_either():
    assert follow(trial(failures=1, failure=HUNG), Outcome.FAILED, HUNG)[0] is TrialState.QUEUED


def test_a_log_line_that_cancels_retries_fails_the_trial_at_once_and_is_quoted():
    what = attempt_end(trial(), attempt(), Outcome.FAILED, KILLED, False, 5, (OUT_OF_MEMORY,))
    assert advance(TrialState.RUNNING, what.event) is TrialState.FAILED
    assert what.changes["failure"].type == "SIGKILL"
    assert what.changes["failure"].message == (
        "rank 1 was ended by SIGKILL (not tried again: rank 1 said 'OutOfMemoryError: CUDA out of memory.', and "
        "--on-log 'CUDA out of memory' cancels retries)"
    )


def test_a_log_line_that_excludes_a_node_names_the_node_of_its_rank():
    gang = (share((0, 1), "a"), share((0,), "b"))
    what = attempt_end(trial(excluded={"c"}), attempt(placement=gang), Outcome.FAILED, KILLED, False, 5, (ECC,))
    assert advance(TrialState.RUNNING, what.event) is TrialState.QUEUED
    assert what.changes["excluded"] == {"b", "c"}
    assert what.notes == (
        "node b is left out from now on: rank 2 said 'uncorrectable ECC error on GPU 3' (--on-log 'ECC error')",
    )


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.LOST, Outcome.RELEASED])
def test_log_lines_of_an_attempt_that_did_not_fail_change_nothing(outcome):
    plain = attempt_end(trial(), attempt(), outcome, None, False, 5)
    assert attempt_end(trial(), attempt(), outcome, None, False, 5, (OUT_OF_MEMORY, ECC)) == plain


def test_invalid_hyperparameters_are_not_tried_again():
    assert follow(trial(), Outcome.FAILED, user_error(invalid=True))[0] is TrialState.FAILED


def test_a_lost_gang_is_never_counted():
    state, changes = follow(trial(failures=5), Outcome.LOST)
    assert state is TrialState.QUEUED
    assert changes == {}


@pytest.mark.parametrize("outcome", [Outcome.RELEASED, Outcome.LOST, Outcome.FAILED, Outcome.KILLED])
def test_a_held_trial_pauses_however_its_gang_left(outcome):
    assert follow(trial(TrialState.RELEASING, holds=frozenset({Hold.USER})), outcome)[0] is TrialState.PAUSED
    assert follow(trial(TrialState.RELEASING), outcome)[0] is TrialState.QUEUED


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_stopping_trial_is_stopped_by_any_end(outcome):
    assert follow(trial(TrialState.STOPPING), outcome)[0] is TrialState.STOPPED


@pytest.mark.parametrize("state", [TrialState.STARTING, TrialState.RUNNING])
@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_an_answer_while_a_gang_works(state, outcome):
    follow(trial(state), outcome, user_error() if outcome is Outcome.FAILED else None)


def test_a_gang_that_its_engine_can_never_hold_pauses_the_experiment_with_the_reason():
    refused = Failure(rank=0, type="SlurmRefused", message="Slurm: invalid account. To change: account")
    found = attempt_end(trial(TrialState.STARTING), attempt(), Outcome.INFEASIBLE, refused, False, 3)
    assert (found.pause, found.notes) == (True, ("paused: Slurm: invalid account. To change: account",))
    queued = trial(advance(TrialState.STARTING, found.event), **found.changes)
    assert queued.state is TrialState.QUEUED
    action = reconcile(ExperimentState.PAUSED, queued, feasible=True)
    assert action == Action(e.Held(), {"holds": frozenset({Hold.USER})})


def test_pausing_releases_what_runs_and_resuming_lifts_the_hold():
    assert reconcile(ExperimentState.PAUSED, trial(), True) == Action(e.Release(), {"holds": frozenset({Hold.USER})})
    paused = trial(TrialState.PAUSED, holds=frozenset({Hold.USER}))
    assert reconcile(ExperimentState.ACTIVE, paused, True) == Action(e.Lifted(), {"holds": frozenset()})


def test_resuming_while_the_gang_still_leaves_only_lifts_the_hold():
    leaving = trial(TrialState.RELEASING, holds=frozenset({Hold.USER}))
    assert reconcile(ExperimentState.ACTIVE, leaving, True) == Action(None, {"holds": frozenset()})


def test_resuming_gives_excluded_nodes_another_chance_and_all_retries_back():
    holds = frozenset({Hold.USER, Hold.ENGINE})
    paused = trial(TrialState.PAUSED, holds=holds, excluded={"here"}, failures=3)
    action = reconcile(ExperimentState.ACTIVE, paused, feasible=False)
    assert action == Action(
        None, {"holds": frozenset({Hold.ENGINE}), "excluded": frozenset(), "failures": 0, "failure": None}
    )
    lifted = reconcile(ExperimentState.ACTIVE, paused.model_copy(update=action.changes), feasible=True)
    assert lifted == Action(e.Lifted(), {"holds": frozenset()})


def test_the_users_hold_leaves_the_searchs_alone():
    held = trial(TrialState.PAUSED, holds=frozenset({Hold.USER, Hold.SEARCH}))
    assert reconcile(ExperimentState.ACTIVE, held, True) == Action(None, {"holds": frozenset({Hold.SEARCH})})


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (TrialState.STARTING, e.Release()),
        (TrialState.RUNNING, e.Release()),
        (TrialState.QUEUED, None),
        (TrialState.RELEASING, None),
        (TrialState.STOPPING, None),
        (TrialState.COMPLETED, None),
    ],
)
def test_a_gang_in_a_pool_that_its_experiment_has_left_is_released(state: TrialState, event: e.Event | None):
    wanted = ExperimentState.STOPPING if state is TrialState.STOPPING else ExperimentState.ACTIVE
    action = reconcile(wanted, trial(state), feasible=True, misplaced=True)
    assert action == (Action(event, {}) if event is not None else None)


def test_an_ask_that_became_impossible_is_held_until_it_fits_again():
    held = reconcile(ExperimentState.ACTIVE, trial(TrialState.QUEUED), feasible=False)
    assert held == Action(e.Held(), {"holds": frozenset({Hold.ENGINE})})
    paused = trial(TrialState.PAUSED, holds=frozenset({Hold.ENGINE}))
    assert reconcile(ExperimentState.ACTIVE, paused, feasible=True) == Action(e.Lifted(), {"holds": frozenset()})


@pytest.mark.parametrize("wanted", list(ExperimentState))
@pytest.mark.parametrize("state", list(TrialState))
@pytest.mark.parametrize("holds", [frozenset(), frozenset({Hold.USER}), frozenset({Hold.ENGINE})])
@pytest.mark.parametrize("feasible", [True, False])
def test_aligning_comes_to_rest_and_never_asks_the_impossible(wanted, state, holds, feasible):
    current = trial(state, holds=holds)
    for _ in range(5):
        action = reconcile(wanted, current, feasible)
        if action is None:
            return
        after = advance(current.state, action.event) if action.event else current.state
        current = current.model_copy(update={"state": after, **action.changes})
    raise AssertionError(f"never at rest: {current}")


def test_an_experiment_ends_when_its_trials_have():
    done, failed, running = TrialState.COMPLETED, TrialState.FAILED, TrialState.RUNNING
    assert terminal_event(ExperimentState.ACTIVE, Counter([done, running])) is None
    assert terminal_event(ExperimentState.ACTIVE, Counter([done, failed])) == e.Completed()
    assert terminal_event(ExperimentState.ACTIVE, Counter([failed])) == e.Failed()
    assert terminal_event(ExperimentState.STOPPING, Counter([TrialState.STOPPED])) == e.Ended()
    assert terminal_event(ExperimentState.COMPLETED, Counter([done])) is None


def test_an_error_of_the_program_alone_fails_its_trial_at_once_and_says_so():
    error = user_error(step=1)
    (frame,) = error.frames
    at = f'  File "definition.py", line 12, in {frame.function}\n    {frame.text}\nValueError: boom\n'
    error = error.model_copy(update={"traceback": at})
    assert follow(trial(), Outcome.FAILED, error) == (TrialState.FAILED, {"failures": 1, "failure": error})
    assert notes(trial(), error) == ("not tried again: the error follows from the program alone",)
    assert notes(trial(failures=1, failure=error), error) == (
        "not tried again: the same error at step 1 twice in a row",
    )
    assert follow(trial(), Outcome.FAILED, error, progress=True)[0] is TrialState.QUEUED
