"""Test an overlay of a folder, in which some files are replaced: reading, walking, writing, and `..`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kernel_backend import overlay as overlays
from kernel_backend.overlay import can_be_led, overlay

LIVE = {
    "home/project/books/config.yaml": "live",
    "home/project/books/other.txt": "other",
    "home/project/books/out/model.pt": "model",
    "home/project/books/.git/HEAD": "main",
    "home/project/data/a/one.txt": "1",
    "home/project/data/a/two.txt": "2",
    "home/elsewhere/far.txt": "far",
    "then/config.yaml": "then",
    "then/a/one.txt": "then 1",
    "then/a/three.txt": "then 3",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in LIVE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "home" / "project" / "books"


def untouched(tmp_path: Path) -> bool:
    return {name: (tmp_path / name).read_text() for name in LIVE} == LIVE


def walked(folder: Path) -> list[str]:
    return sorted(os.path.relpath(Path(at, name), folder) for at, _, names in os.walk(folder) for name in names)


def test_only_what_is_named_leads_elsewhere(project: Path, tmp_path: Path):
    then = tmp_path / "then"
    targets = {"config.yaml": then / "config.yaml", "../data/a/one.txt": then / "a/one.txt"}
    seen = overlay(project, targets, {}, tmp_path / "likeness").cwd
    texts = ["config.yaml", "other.txt", "../data/a/one.txt", "../data/a/two.txt", "../../elsewhere/far.txt"]
    assert [(seen / name).read_text() for name in texts] == ["then", "other", "then 1", "2", "far"]
    assert untouched(tmp_path)


def test_what_is_made_renamed_or_deleted_in_it_stays_in_it(project: Path, tmp_path: Path):
    seen = overlay(project, {}, {"config.yaml": tmp_path / "then/config.yaml"}, tmp_path / "likeness").cwd
    (seen / "config.yaml").write_text("written over")
    (seen / "out" / "new.pt").write_text("new")
    (seen / "made.tmp").write_text("made")
    (seen / "made.tmp").replace(seen / "out" / "model.pt")
    (seen / "other.txt").unlink()
    assert untouched(tmp_path)
    shutil.rmtree(seen / "out")
    assert untouched(tmp_path)
    assert not (project / "out" / "new.pt").exists()


def test_it_is_walked_as_the_folder_itself_is(project: Path, tmp_path: Path):
    likeness = overlay(project, {"../data/a": tmp_path / "then/a"}, {}, tmp_path / "likeness")
    assert not likeness.linked
    seen = sorted(str(path.relative_to(likeness.cwd)) for path in likeness.cwd.rglob("*.*"))
    assert seen == [".git", "config.yaml", "other.txt", "out/model.pt"]
    assert walked(likeness.cwd / "../data/a") == ["one.txt", "three.txt"]


def test_folders_that_are_too_large_are_links_as_a_whole(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(overlays, "ENTRIES", 3)
    (project / "large").mkdir()
    for number in range(4):
        (project / "large" / str(number)).touch()
    likeness = overlay(project, {}, {}, tmp_path / "likeness")
    assert likeness.linked
    assert (likeness.cwd / "large").is_symlink()
    assert not (likeness.cwd / "out").is_symlink()


@pytest.mark.parametrize("turned", [False, True])
def test_of_targets_within_each_other_both_count(project: Path, tmp_path: Path, turned: bool):
    targets = {"../data": tmp_path / "then", "../data/a/one.txt": tmp_path / "home/elsewhere/far.txt"}
    seen = overlay(project, dict(reversed(targets.items())) if turned else targets, {}, tmp_path / "likeness").cwd
    assert walked(seen / "../data") == ["a/one.txt", "a/three.txt", "config.yaml"]
    assert (seen / "../data/a/one.txt").read_text() == "far"
    assert untouched(tmp_path)


def test_what_is_gone_is_there_again_even_where_the_whole_folder_is(project: Path, tmp_path: Path):
    shutil.rmtree(project)
    targets, copies = {"../data/a": tmp_path / "then/a"}, {"deep/config.yaml": tmp_path / "then/config.yaml"}
    seen = overlay(project, targets, copies, tmp_path / "likeness").cwd
    assert walked(seen) == ["deep/config.yaml"]
    assert walked(seen / "../data/a") == ["one.txt", "three.txt"]


def test_a_folder_behind_a_link_is_looked_into_and_left_alone(project: Path, tmp_path: Path):
    (project / "linked").symlink_to(tmp_path / "home/project/data")
    seen = overlay(project, {"linked/a/one.txt": tmp_path / "then/a/one.txt"}, {}, tmp_path / "likeness").cwd
    assert (seen / "linked/a/one.txt").read_text() == "then 1"
    assert (seen / "linked/a/two.txt").read_text() == "2"
    assert untouched(tmp_path)


def test_links_in_circles_and_odd_names_are_passed_on(project: Path, tmp_path: Path):
    (project / "round").symlink_to(project)
    odd = project / os.fsdecode(b"caf\xe9 \n")
    odd.write_text("odd")
    seen = overlay(project, {}, {}, tmp_path / "likeness").cwd
    assert (seen / "round/round/other.txt").read_text() == "other"
    assert (seen / odd.name).read_text() == "odd"


def test_one_that_lies_in_the_folder_itself_has_an_end(project: Path):
    seen = overlay(project, {}, {}, project / "home" / "standins" / "1.1").cwd
    assert (seen / "other.txt").read_text() == "other"
    assert (seen / "home" / "standins").is_symlink()


def test_a_link_in_place_of_the_folder_is_not_written_through(project: Path, tmp_path: Path):
    (tmp_path / "moved").symlink_to(project)
    seen = overlay(tmp_path / "moved", {"config.yaml": tmp_path / "then/config.yaml"}, {}, tmp_path / "likeness").cwd
    assert (seen / "config.yaml").read_text() == "then"
    assert untouched(tmp_path)


def test_only_a_relative_path_below_other_folders_can_be_led_and_only_to_a_file_or_folder(project: Path):
    cwd = str(project)
    assert all(can_be_led(name, "/new", cwd) for name in ("data/leslie", "../data", "data/"))
    assert not any(
        can_be_led(name, "/new", cwd) for name in (".", "..", "../..", "~/data", "/data", "s3://bucket/data")
    )
    assert not any(can_be_led("data", place, cwd) for place in ("s3://bucket/data", "relative"))
