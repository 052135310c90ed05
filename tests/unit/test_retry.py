"""Test retry policies: the pauses between tries, and the error after the last one."""

from __future__ import annotations

from itertools import islice

import pytest

from kernel_backend.retry import RetryPolicy, exponential


class Flaky:
    """Function that raises the given errors, one per call, and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.calls = list(errors), 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def test_pauses_grow_to_the_longest_one_which_repeats():
    assert exponential(2.0, 60.0) == (2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
    assert exponential(0.5, 4.0) == (0.5, 1.0, 2.0, 4.0)
    assert exponential(0.2, 1.0, factor=1.5) == pytest.approx((0.2, 0.3, 0.45, 0.675, 1.0))
    policy = RetryPolicy((1.0, 5.0))
    assert [policy.pause(failures) for failures in range(5)] == [0.0, 1.0, 5.0, 5.0, 5.0]
    assert list(islice(policy.waits(), 4)) == [1.0, 5.0, 5.0, 5.0]


def test_no_further_try_begins_when_tries_or_time_have_run_out():
    assert list(RetryPolicy((1.0, 2.0), tries=4).waits()) == [1.0, 2.0, 2.0]
    assert list(RetryPolicy((1.0,), tries=1).waits()) == []
    assert list(RetryPolicy((1.0,), limit=0.0).waits()) == []


def test_a_call_is_repeated_until_it_answers():
    flaky = Flaky(OSError("first"), OSError("second"))
    assert RetryPolicy((0.0,), tries=3).call(flaky) == "answer"
    assert flaky.calls == 3


def test_the_last_error_is_raised():
    flaky = Flaky(OSError("first"), OSError("second"), OSError("third"))
    with pytest.raises(OSError, match="second"):
        RetryPolicy((0.0,), tries=2).call(flaky)


@pytest.mark.parametrize("errors", [{"on": ValueError}, {"unless": OSError}, {"unless": (KeyError, OSError)}])
def test_other_errors_are_raised_at_once(errors):
    flaky = Flaky(OSError("first"))
    with pytest.raises(OSError, match="first"):
        RetryPolicy((0.0,), tries=2).call(flaky, **errors)
    assert flaky.calls == 1
