"""Test how long definitions of loaded models are kept."""

from __future__ import annotations

import importlib
import os
import threading
import time
from pathlib import Path

import pytest

from kernel_backend.snapshots.loaded.cleanup import KEPT, UNUSED_S, in_use, remove_unused

DAY_S = 86_400.0


def used(root: Path, name: str, days_ago: float) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "definition.py").write_text("")
    then = time.time() - days_ago * DAY_S
    os.utime(folder, (then, then))
    return folder


def names(root: Path) -> set[str]:
    return {each.name for each in root.iterdir() if each.is_dir()}


def test_what_nobody_has_used_for_a_month_goes_and_the_last_used_hundred_stay(tmp_path: Path) -> None:
    recent = {used(tmp_path, f"s_{index:03}", 365 + index).name for index in range(KEPT - 2)}
    newest = used(tmp_path, "s_today", 0).name
    week = used(tmp_path, "s_week", 7).name
    remove_unused(tmp_path)
    assert names(tmp_path) == {*recent, newest, week}
    more = {used(tmp_path, f"s_more{index}", 29).name for index in range(3)}
    remove_unused(tmp_path)
    oldest = {f"s_{index:03}" for index in range(KEPT - 5, KEPT - 2)}
    assert names(tmp_path) == {*recent, newest, week, *more} - oldest


def test_nothing_that_was_used_within_a_month_goes_however_many_there_are(tmp_path: Path) -> None:
    made = {used(tmp_path, f"s_{index:03}", 29).name for index in range(KEPT + 5)}
    remove_unused(tmp_path)
    assert names(tmp_path) == made


def test_a_folder_that_a_killed_process_has_left_goes_after_a_day(tmp_path: Path) -> None:
    used(tmp_path, "new-left", 2)
    used(tmp_path, "new-now", 0)
    remove_unused(tmp_path)
    assert names(tmp_path) == {"new-now"}


def test_to_use_one_keeps_it_and_what_is_not_there_cannot_be_used(tmp_path: Path) -> None:
    folder = used(tmp_path, "s_old", 2 * UNUSED_S / DAY_S)
    assert in_use(folder)
    assert time.time() - folder.stat().st_mtime < UNUSED_S
    assert not in_use(tmp_path / "s_none")
    assert not in_use(tmp_path / "nowhere" / "s_none")


def test_one_is_never_removed_while_somebody_begins_to_use_it(tmp_path: Path) -> None:
    """If a process was told that a definition exists, the definition is not removed."""
    for index in range(KEPT):
        used(tmp_path, f"s_{index:03}", 1)
    for turn in range(20):
        folder = used(tmp_path, f"s_contested{turn}", 60)
        begin, there = threading.Barrier(2), list[bool]()

        def use(folder: Path = folder, begin: threading.Barrier = begin, there: list[bool] = there) -> None:
            begin.wait()
            there.append(in_use(folder))

        thread = threading.Thread(target=use)
        thread.start()
        begin.wait()
        remove_unused(tmp_path)
        thread.join()
        assert there == [folder.is_dir()]


def test_a_definition_that_is_gone_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match=r"s_0123 is not there any more: .* Load its experiment's model once"):
        importlib.import_module("kernel_backend.snapshots.loaded.s_0123")
