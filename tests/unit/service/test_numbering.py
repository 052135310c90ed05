"""Test that numbers continue after the largest in use, and that a database older than its folders is reported."""

from __future__ import annotations

from pathlib import Path

from kernel_backend.home import attempt_folder, largest_number
from kernel_backend.model.ids import AttemptId
from kernel_backend.service.numbering import forgotten
from kernel_backend.workspaces.own import OwnWorkspace


def test_the_largest_number_is_found_in_any_folder_of_a_home(tmp_path: Path) -> None:
    assert largest_number(tmp_path) == 0
    for folder in ("attempts/12.1-2", "checkpoints/40/1", "standins/41.3", "prepared/7", "searches/8", "gangs/42.1-1"):
        (tmp_path / folder).mkdir(parents=True)
        expected = {"attempts/12.1-2": 12, "checkpoints/40/1": 40, "standins/41.3": 41, "gangs/42.1-1": 42}
        assert largest_number(tmp_path) >= expected.get(folder, 0)
    for junk in (
        "checkpoints/99 old",
        "checkpoints/backup-99",
        "artifacts/99.x",
        "attempts/99.1-1.other-1",
        "attempts/999999999",
    ):
        (tmp_path / junk).mkdir(parents=True)
    assert largest_number(tmp_path) == 42


def test_attempts_that_have_a_folder_are_passed_over_one_by_one(tmp_path: Path) -> None:
    area = OwnWorkspace(tmp_path)
    for number in (1, 2, 3, 5):
        attempt_folder(tmp_path, AttemptId(7, 1, number)).mkdir(parents=True)
    assert [area.last_attempt(7, 1, since) for since in (0, 2, 3, 4)] == [3, 3, 3, 5]
    assert area.last_attempt(7, 2, 0) == 0


def test_a_database_that_knows_all_of_its_folders_says_nothing() -> None:
    assert forgotten(0, 0, {}, []) == ""
    assert forgotten(12, 12, {(12, 1): 2}, ["12.1-1", "12.1-2", "notes", "12.1-9.other-1"]) == ""
    assert forgotten(13, 12, {(12, 1): 2, (13, 1): 0}, ["12.1-1"]) == ""


def test_a_database_that_is_older_than_its_folders_says_by_how_much() -> None:
    note = forgotten(12, 45, {(12, 1): 2}, ["12.1-1", "12.1-3", "45.1-1", "45.2-1"])
    assert note == (
        "the database is older than its folders: its newest experiment is #12, folders are there up to #45, and of 3 "
        "attempts that it does not know (12.1-3, 45.1-1, 45.2-1). New experiments are numbered from #46 on, and what "
        "is in the others' folders is left alone"
    )
    assert "it knows no experiment" in forgotten(0, 3, {}, [])
    assert forgotten(12, 12, {(12, 1): 2}, ["12.1-3"]).startswith("the database is older than its folders")
