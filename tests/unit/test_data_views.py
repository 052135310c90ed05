"""Data that was added to or renamed is put back as it was by links, and a training is led to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.data.base import Fingerprint
from kernel_backend.data.declared import declare, fingerprint
from kernel_backend.data.views import can_be_led, led, view


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project" / "data" / "leslie"
    folder.mkdir(parents=True)
    for name in ("a", "b", "c"):
        (folder / name).write_text(name * 3)
    (tmp_path / "project" / "labels.csv").write_text("1,2")
    return tmp_path / "project"


def read(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_files_that_were_added_are_left_out_and_renamed_ones_have_their_names_again(project: Path, tmp_path: Path):
    root = project / "data" / "leslie"
    before = fingerprint(str(root)).listed
    (root / "d").write_text("new")
    (root / "a").rename(root / "moved")
    found = view(before, fingerprint(str(root)), root, tmp_path / "view")
    assert found.missing == ()
    assert read(found.place) == {"a": "aaa", "b": "bbb", "c": "ccc"}


def test_what_has_been_edited_or_deleted_is_named_and_nothing_is_made(project: Path, tmp_path: Path):
    root = project / "data" / "leslie"
    before = fingerprint(str(root)).listed
    (root / "a").write_text("xyz")
    (root / "b").unlink()
    found = view(before, fingerprint(str(root)), root, tmp_path / "view")
    assert found.missing == ("a", "b")
    assert not found.place.exists()


def test_a_single_file_is_a_file(project: Path, tmp_path: Path):
    made = view(fingerprint(str(project / "labels.csv")).listed, *_present(project / "labels.csv"), tmp_path / "view")
    assert made.place.read_text() == "1,2"


def test_a_hyperparameter_that_names_the_data_names_its_place(project: Path):
    (data,) = declare([str(project / "data")], project).data
    params = {"root": data.path, "lr": 0.1}
    assert led(data, "/new", str(project), params, data.path) == {"root": "/new", "lr": 0.1}
    assert led(data, "/new", str(project), {"root": "/old"}, "/old") == {"root": "/new"}


def test_only_a_relative_path_below_other_folders_can_be_led_elsewhere(project: Path):
    (data,) = declare([str(project / "data")], project).data
    assert led(data, "/new", str(project), {"lr": 0.1}, data.path) is None
    for name, can in {
        "data/leslie": True,
        "../data": True,
        "data/": True,
        ".": False,
        "..": False,
        "~/data": False,
    }.items():
        assert can_be_led(name, str(project)) == can, name
    assert not can_be_led("s3://bucket/data", str(project))


def _present(path: Path) -> tuple[Fingerprint, Path]:
    return fingerprint(str(path)), path
