"""Test that programs whose setup acts on files are resumed as if they had not been killed; `tests.torture` has more."""

from __future__ import annotations

import pytest

from tests.support.script_runs import run
from tests.torture.setups import differences, killed, prepared


@pytest.mark.parametrize("name", ["rmtree_outside", "next_number", "names_by_chance", "overwrite_config", "sqlite_wal"])
def test_a_killed_program_leaves_the_files_of_one_that_was_not(name, tmp_path):
    assert differences(name, tmp_path) == []


@pytest.mark.parametrize("name", ["rmtree", "datetime_name"])
def test_without_a_namespace_no_file_is_removed_twice_and_a_log_of_another_name_continues(name, tmp_path):
    program = prepared(tmp_path / "work", name)
    ended = killed(program, past=None)
    assert ended.error == ""
    alone = run(prepared(tmp_path / "plain" / "work", name), rewritten=False)
    assert ended.printed.splitlines()[0] == alone.printed.splitlines()[0]
    lines = (each for path, each in ended.files.items() if path.endswith(("train.log", "best.pt")))
    assert list(lines) == [each for path, each in alone.files.items() if path.endswith(("train.log", "best.pt"))]


def test_a_file_that_a_forked_child_wrote_at_the_start_stays(tmp_path):
    assert differences("fork_child", tmp_path) == []
