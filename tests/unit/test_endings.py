"""What an attempt's end means to its trial, and what an experiment's state means to it."""

from __future__ import annotations

import pytest

from kernel_backend.model import events as e
from kernel_backend.model.states import ExperimentState, Hold, Outcome, TrialState, advance
from kernel_backend.model.trial import Failure
from kernel_backend.scheduler.align import Nudge, align, settled
from kernel_backend.scheduler.endings import ending
from tests.builders import attempt, trial, user_error

KILLED = Failure(rank=1, type="SIGKILL", message="rank 1 was ended by SIGKILL")


def follow(trial_before, outcome, failure=None, progress=False, max_restarts=5):
    """The trial's state after this end, and the changes that went with it."""
    what = ending(trial_before, attempt(), outcome, failure, progress, max_restarts)
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


def test_no_restarts_means_the_first_error_is_the_last():
    assert follow(trial(), Outcome.FAILED, KILLED, max_restarts=0)[0] is TrialState.FAILED


def test_the_same_error_at_the_same_step_twice_ends_it_early():
    before = trial(failures=1, failure=user_error(step=7))
    assert follow(before, Outcome.FAILED, user_error(step=7, rank=1))[0] is TrialState.FAILED
    assert follow(before, Outcome.FAILED, user_error(step=8))[0] is TrialState.QUEUED


def test_two_kills_in_a_row_are_no_proof_of_a_fault_in_the_code():
    assert follow(trial(failures=1, failure=KILLED), Outcome.FAILED, KILLED)[0] is TrialState.QUEUED


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


def test_an_impossible_gang_is_queued_held_and_then_paused():
    state, changes = follow(trial(TrialState.STARTING), Outcome.INFEASIBLE)
    assert state is TrialState.QUEUED
    queued = trial(state, **changes)
    assert align(ExperimentState.ACTIVE, queued, feasible=False) == Nudge(e.Held(), {})


def test_pausing_releases_what_runs_and_resuming_lifts_the_hold():
    assert align(ExperimentState.PAUSED, trial(), True) == Nudge(e.Release(), {"holds": frozenset({Hold.USER})})
    paused = trial(TrialState.PAUSED, holds=frozenset({Hold.USER}))
    assert align(ExperimentState.ACTIVE, paused, True) == Nudge(e.Lifted(), {"holds": frozenset()})


def test_resuming_while_the_gang_still_leaves_only_lifts_the_hold():
    leaving = trial(TrialState.RELEASING, holds=frozenset({Hold.USER}))
    assert align(ExperimentState.ACTIVE, leaving, True) == Nudge(None, {"holds": frozenset()})


def test_the_users_hold_leaves_the_searchs_alone():
    held = trial(TrialState.PAUSED, holds=frozenset({Hold.USER, Hold.SEARCH}))
    assert align(ExperimentState.ACTIVE, held, True) == Nudge(None, {"holds": frozenset({Hold.SEARCH})})


def test_an_ask_that_became_impossible_is_held_until_it_fits_again():
    held = align(ExperimentState.ACTIVE, trial(TrialState.QUEUED), feasible=False)
    assert held == Nudge(e.Held(), {"holds": frozenset({Hold.ENGINE})})
    paused = trial(TrialState.PAUSED, holds=frozenset({Hold.ENGINE}))
    assert align(ExperimentState.ACTIVE, paused, feasible=True) == Nudge(e.Lifted(), {"holds": frozenset()})


@pytest.mark.parametrize("wanted", list(ExperimentState))
@pytest.mark.parametrize("state", list(TrialState))
@pytest.mark.parametrize("holds", [frozenset(), frozenset({Hold.USER}), frozenset({Hold.ENGINE})])
@pytest.mark.parametrize("feasible", [True, False])
def test_aligning_comes_to_rest_and_never_asks_the_impossible(wanted, state, holds, feasible):
    current = trial(state, holds=holds)
    for _ in range(5):
        nudge = align(wanted, current, feasible)
        if nudge is None:
            return
        after = advance(current.state, nudge.event) if nudge.event else current.state
        current = current.model_copy(update={"state": after, **nudge.changes})
    raise AssertionError(f"never at rest: {current}")


def test_an_experiment_ends_when_its_trials_have():
    done, failed, running = TrialState.COMPLETED, TrialState.FAILED, TrialState.RUNNING
    assert settled(ExperimentState.ACTIVE, [done, running]) is None
    assert settled(ExperimentState.ACTIVE, [done, failed]) == e.Completed()
    assert settled(ExperimentState.ACTIVE, [failed]) == e.Failed()
    assert settled(ExperimentState.STOPPING, [TrialState.STOPPED]) == e.Ended()
    assert settled(ExperimentState.COMPLETED, [done]) is None
