"""A likeness of a folder in which some files are others: read, written, made again, and left by `..`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.overlay import overlay


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "home/project/books/config.yaml": "live",
        "home/project/books/other.txt": "other",
        "home/project/data/a/one.txt": "1",
        "home/project/data/a/two.txt": "2",
        "home/elsewhere/far.txt": "far",
        "then/config.yaml": "then",
        "then/one.txt": "then 1",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "home" / "project" / "books"


def test_only_what_is_named_leads_elsewhere(project: Path, tmp_path: Path):
    then = tmp_path / "then"
    targets = {"config.yaml": then / "config.yaml", "../data/a/one.txt": then / "one.txt"}
    seen = overlay(project, targets, tmp_path / "likeness")
    texts = ["config.yaml", "other.txt", "../data/a/one.txt", "../data/a/two.txt", "../../elsewhere/far.txt"]
    assert [(seen / name).read_text() for name in texts] == ["then", "other", "then 1", "2", "far"]
    assert (project / "config.yaml").read_text() == "live"
    assert (seen / tmp_path).samefile(tmp_path)


def test_what_is_gone_from_the_folder_is_there_again(project: Path, tmp_path: Path):
    (project / "config.yaml").unlink()
    seen = overlay(project, {"config.yaml": tmp_path / "then/config.yaml"}, tmp_path / "likeness")
    assert (seen / "config.yaml").read_text() == "then"


def test_made_again_it_keeps_what_a_training_wrote_and_forgets_what_is_gone(project: Path, tmp_path: Path):
    targets = {"config.yaml": tmp_path / "then/config.yaml"}
    seen = overlay(project, targets, tmp_path / "likeness")
    (seen / "cache.npy").write_text("made by the training")
    (project / "cache.npy").write_text("of somebody else")
    (project / "other.txt").unlink()
    targets["../data/a/one.txt"] = tmp_path / "then/one.txt"  # its folder was a link until now
    assert overlay(project, targets, tmp_path / "likeness") == seen
    assert (seen / "cache.npy").read_text() == "made by the training"
    assert not (seen / "other.txt").is_symlink()
    assert (seen / "../data/a/one.txt").read_text() == "then 1"
    assert (project / "../data/a/one.txt").read_text() == "1"
    assert not (project / "../data/a/one.txt").is_symlink()


def test_a_folder_behind_a_link_is_looked_into_and_left_alone(project: Path, tmp_path: Path):
    (project / "linked").symlink_to(tmp_path / "home/project/data")
    seen = overlay(project, {"linked/a/one.txt": tmp_path / "then/one.txt"}, tmp_path / "likeness")
    assert (seen / "linked/a/one.txt").read_text() == "then 1"
    assert (seen / "linked/a/two.txt").read_text() == "2"
    assert (tmp_path / "home/project/data/a/one.txt").read_text() == "1"


def test_a_likeness_of_a_likeness(project: Path, tmp_path: Path):
    first = overlay(project, {"config.yaml": tmp_path / "then/config.yaml"}, tmp_path / "likeness")
    second = overlay(first, {"../data/a/one.txt": tmp_path / "then/one.txt"}, tmp_path / "second")
    assert (second / "config.yaml").read_text() == "then"
    assert (second / "../data/a/one.txt").read_text() == "then 1"
    assert (second / "../../elsewhere/far.txt").read_text() == "far"


def test_a_link_in_place_of_the_folder_is_not_written_through(project: Path, tmp_path: Path):
    moved = tmp_path / "moved"
    moved.symlink_to(project)
    seen = overlay(moved, {"config.yaml": tmp_path / "then/config.yaml"}, tmp_path / "likeness")
    assert (seen / "config.yaml").read_text() == "then"
    assert (project / "config.yaml").read_text() == "live"
