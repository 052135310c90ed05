"""Test the outcome of a gang where the launcher knows more than exit codes: a hang, and each rank's progress."""

from __future__ import annotations

import pytest

from kernel_backend.launch.gang_outcome import gang_outcome
from kernel_backend.model.trial import HANG, Failure
from tests.support.builders import user_error

HUNG = Failure(rank=1, type=HANG, message="rank 1 made no progress for 9 s in step 7", step=7, traceback="Thread ...")


def test_a_hang_is_the_failure_of_a_gang_that_was_ended_for_it():
    result = gang_outcome([-9, -9], {}, frozenset({0, 1}), 1.0, {0: 7, 1: 7}, HUNG)
    assert (result.outcome, result.failure) == ("failed", HUNG)


def test_a_hang_explains_ranks_that_the_question_for_their_stacks_ended():
    assert gang_outcome([-3, -9], {}, frozenset({1}), 1.0, {}, HUNG).failure == HUNG


def test_an_error_that_was_raised_comes_before_the_hang_that_followed():
    raised = user_error(rank=0)
    assert gang_outcome([-9, -9], {0: raised}, frozenset({0, 1}), 1.0, {}, HUNG).failure == raised


def test_a_lost_peer_does_not():
    lost_peer = Failure(rank=0, type="HorovodInternalError", message="connection closed by peer", consequence=True)
    assert gang_outcome([-9, -9], {0: lost_peer}, frozenset({0, 1}), 1.0, {}, HUNG).failure == HUNG


@pytest.mark.parametrize(("codes", "type"), [([-9, -9], "SIGKILL"), ([3, -9], "Exit"), ([0, -9], "EarlyExit")])
def test_a_rank_that_says_nothing_is_told_with_the_step_it_was_about(codes, type):
    failure = gang_outcome(codes, {}, frozenset({1}), 1.0, {0: 12, 1: 13}).failure
    assert failure is not None
    assert (failure.rank, failure.type, failure.step) == (0, type, 12)


@pytest.mark.parametrize("peer", [-9, -11, 1, -40])
def test_once_a_rank_has_left_in_peace_it_is_of_no_matter_how_its_peers_end(peer):
    said = {1: Failure(rank=1, type="RuntimeError", message="socket closed", consequence=True)}
    assert gang_outcome([85, peer], said, frozenset(), 1.0).outcome == "released"
    assert gang_outcome([0, peer], said, frozenset(), 1.0, through=True).outcome == "ok"
    assert gang_outcome([0, peer], {}, frozenset(), 1.0, through=False).outcome == "failed"


def test_a_signal_without_a_name_is_told_by_its_number():
    failure = gang_outcome([-40], {}, frozenset(), 1.0).failure
    assert failure is not None
    assert failure.message == "rank 0 was ended by SIG40"
    assert failure.crash


def test_a_port_that_the_users_program_chose_fails_the_gang_and_says_what_to_write():
    taken = user_error(message="bind on [localhost]:29517: EADDRINUSE", consequence=True)
    result = gang_outcome([1], {0: taken}, frozenset(), 1.0)
    assert result.outcome == "failed"
    assert result.failure is not None
    assert result.failure.message.startswith("bind on [localhost]:29517: EADDRINUSE. The program opens this port")
    assert "in place of mp.spawn(train, ...) or notebook_launcher(train, ...)" in result.failure.message
    ours = taken.model_copy(update={"frames": ()})
    assert gang_outcome([1], {0: ours}, frozenset(), 1.0).outcome == "lost"
