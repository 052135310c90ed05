"""Run short versions of those torture tests that need no training."""

from __future__ import annotations

from tests.torture import corruptions, full_disks, registers


def test_every_corruption_in_a_folder_is_noticed(tmp_path, capsys):
    said = corruptions.run(100, 7, str(tmp_path / "runs"))
    with capsys.disabled():
        print(f"\n{said}")
    assert said.startswith("100 of 100 corruptions noticed")


def test_every_corruption_in_an_object_store_is_noticed(capsys):
    said = corruptions.run(100, 8, "memory://tortured/1")
    with capsys.disabled():
        print(f"\n{said}")
    assert said.startswith("100 of 100 corruptions noticed")


def test_full_disks_leave_nothing_and_cost_nothing_older(tmp_path, capsys):
    said = full_disks.run(5, 9, tmp_path)
    with capsys.disabled():
        print(f"\n{said}")
    assert said.startswith("5 of 5 full disks survived")


def test_no_registered_or_pinned_file_is_lost_by_random_histories(capsys):
    said = registers.histories(40, 10)
    with capsys.disabled():
        print(f"\n{said}")
    assert said.startswith("40 of 40 histories lost no file")


def test_an_alias_that_two_writers_move_has_a_linear_log_and_a_value_at_each_date(capsys):
    said = registers.moves(100, 11)
    with capsys.disabled():
        print(f"\n{said}")
    assert said == "100 moves in one linear log, 1000 of 1000 questions by date right"
