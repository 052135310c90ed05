"""Test that a launcher kills ranks that hang, names the rank and its location, and searches their logs meanwhile."""

from __future__ import annotations

import re

from kernel_backend.model.experiment import LOG_POLICIES


def test_a_rank_that_sleeps_is_named_with_its_own_line_and_the_stacks_of_all(launched):
    folder, result = launched("sleep")
    failure = result.failure
    assert (result.outcome, failure.type, failure.rank, failure.step) == ("failed", "Hang", 1, 4)
    said = r"rank 1 made no progress for ([0-9.]+) s in step 4: it stands at standin_steps.py line \d+, in asleep"
    seconds = re.fullmatch(said, failure.message)
    assert seconds is not None, failure.message
    assert float(seconds[1]) >= 4
    assert (failure.frames[-1].function, failure.frames[-1].text) == ("asleep", "time.sleep(3600)")
    assert failure.frames[0].function == "<module>"
    assert failure.traceback.index("rank 1, idle") < failure.traceback.index("rank 0, idle")
    assert result.exit_codes == (-9, -9)
    assert (folder.path / "stacks-0.log").read_text().count("most recent call first") == 2


def test_a_rank_that_is_stuck_in_native_code_shows_where_all_the_same(launched):
    _, result = launched("native")
    assert (result.failure.type, result.failure.rank) == ("Hang", 1)
    assert result.failure.frames[-1].function == "<lambda>"
    assert 're.match("(a+)+$"' in result.failure.frames[-1].text


def test_a_frozen_rank_does_not_answer_and_is_killed(launched):
    _, result = launched("freeze")
    assert (result.failure.type, result.failure.rank, result.failure.step) == ("Hang", 1, 4)
    assert result.failure.message.endswith("it does not answer, as a process does that is stopped or waits for a disk")
    assert "(no answer)" in result.failure.traceback
    assert result.exit_codes[1] == -9


def test_ranks_that_get_on_are_left_alone_however_short_the_time_out(launched):
    _, result = launched("none", steps=120)  # of which all take longer than the time-out, and each much less
    assert (result.outcome, result.failure, result.matched) == ("ok", None, ())


def test_a_killed_rank_is_named_with_its_step_and_a_line_of_it_that_a_policy_asks_for(launched):
    _, result = launched("kill", say="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    assert (result.failure.type, result.failure.rank, result.failure.step) == ("SIGKILL", 1, 4)
    (match,) = result.matched
    assert (match.pattern, match.action, match.rank) == (LOG_POLICIES[0].pattern, "cancel_retries", 1)
    assert match.line.startswith("torch.OutOfMemoryError: CUDA out of memory.")
