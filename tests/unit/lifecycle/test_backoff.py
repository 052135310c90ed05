"""Test the backoff of a trial before its next attempt."""

from __future__ import annotations

import pytest

from kernel_backend.lifecycle.backoff import rest
from kernel_backend.model.states import Outcome
from tests.support.builders import attempt, trial

GROWING = [0, 0, 2, 4, 8, 16, 32, 60, 60]


def ended(number, outcome=Outcome.LOST, after=1.0):
    return attempt(number, outcome=outcome, ended_at=100.0 + after)


def rest_after(*attempts, **fields):
    return rest(trial(attempt=len(attempts), **fields), attempts)


def test_rests_grow_to_a_minute_and_a_single_crash_costs_none():
    assert [rest_after(ended(1, Outcome.FAILED), failures=failures) for failures in range(9)] == GROWING


def test_gangs_that_are_lost_at_once_again_and_again_rest_like_failures():
    assert [rest_after(*(ended(number + 1) for number in range(times))) for times in range(9)] == GROWING
    assert rest_after(*(ended(number + 1) for number in range(5000))) == 60


@pytest.mark.parametrize(
    "between", [ended(3, after=3600.0), ended(3, Outcome.RELEASED), ended(3, Outcome.FAILED), attempt(3)]
)
def test_only_those_in_a_row_count(between):
    assert rest_after(ended(1), ended(2), between) == 0
    assert rest_after(ended(1), ended(2), between, ended(4)) == 0
    assert rest_after(ended(1), ended(2), between, ended(4), ended(5)) == 2


def test_who_has_committed_something_was_not_lost_in_vain():
    attempts = [ended(number) for number in (1, 2, 3, 4)]
    assert rest_after(*attempts, checkpoint="40-4") == 0
    assert rest_after(*attempts, checkpoint="40-2") == 2
    assert rest_after(*attempts, checkpoint=None) == 8


def test_failures_and_losses_in_turn_rest_by_what_there_is_more_of():
    assert rest_after(ended(1), ended(2), ended(3), failures=2) == 4
    assert rest_after(ended(1, Outcome.FAILED), ended(2), failures=3) == 4
