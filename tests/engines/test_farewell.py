"""Test the end of a gang: a rank that hangs after the last checkpoint is killed, and the outcome stays the same."""

from __future__ import annotations

import json

import psutil
import pytest


@pytest.mark.parametrize(("code", "outcome"), [(0, "ok"), (85, "released")])
def test_a_rank_that_never_leaves_is_ended_after_a_while_and_changes_nothing(launched, code, outcome):
    _, result = launched("none", farewell=0.3, steps=2, exit=code, part="sleep")
    assert (result.outcome, result.failure, result.exit_codes) == (outcome, None, (code, -9))


@pytest.mark.parametrize(("code", "outcome"), [(0, "ok"), (85, "released")])
def test_nor_does_one_that_crashes_when_all_is_saved(launched, code, outcome):
    _, result = launched("none", steps=2, exit=code, part="late kill")
    assert (result.outcome, result.failure, result.exit_codes) == (outcome, None, (code, -9))


def test_who_leaves_in_the_middle_of_the_training_is_to_blame_and_nothing_is_complete(launched):
    _, result = launched("leave", farewell=0.3)
    assert (result.outcome, result.exit_codes) == ("failed", (-9, 0))
    assert (result.failure.type, result.failure.rank, result.failure.step) == ("EarlyExit", 1, 4)


def test_a_launcher_that_cannot_go_on_ends_its_ranks_and_says_why(launched, tmp_path):
    (tmp_path / "attempt").mkdir()
    (tmp_path / "attempt" / "failure-0.json").symlink_to("/proc/self/mem")  # EIO: what a rank has to say cannot be read
    folder, result = launched("kill")
    assert (result.outcome, result.failure.type) == ("lost", "OSError")
    assert result.failure.message.startswith("the launcher could not go on: ")
    pids = json.loads((folder.path / "ranks.json").read_bytes()).values()
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_folder_in_place_of_what_a_rank_has_to_say_is_no_word_of_it(launched, tmp_path):
    (tmp_path / "attempt" / "failure-0.json").mkdir(parents=True)
    _, result = launched("kill")
    assert (result.outcome, result.failure.type) == ("failed", "SIGKILL")
