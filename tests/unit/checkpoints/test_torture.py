"""Run short versions of those torture tests that need no training."""

from __future__ import annotations

from tests.torture import corruptions, full_disks


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
