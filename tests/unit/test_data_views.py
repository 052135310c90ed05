"""Data that was added to or renamed is put back as it was by links, and a training is made to see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.data.declared import declare, fingerprint
from kernel_backend.data.views import seen_by, view


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
    assert read(found.folder) == {"a": "aaa", "b": "bbb", "c": "ccc"}


def test_what_has_been_edited_or_deleted_is_named_and_nothing_is_made(project: Path, tmp_path: Path):
    root = project / "data" / "leslie"
    before = fingerprint(str(root)).listed
    (root / "a").write_text("xyz")
    (root / "b").unlink()
    found = view(before, fingerprint(str(root)), root, tmp_path / "view")
    assert found.missing == ("a", "b")
    assert not found.folder.exists()


def test_a_relative_path_leads_to_the_view_and_all_else_is_as_it_was(project: Path, tmp_path: Path):
    (data,) = declare(["data/leslie"], project).data
    before = fingerprint(data.path).listed
    (Path(data.path) / "d").write_text("new")
    made = view(before, fingerprint(data.path), Path(data.path), tmp_path / "view")
    for _ in range(2):  # it may have been made before
        seen = seen_by(data, made, project, {"lr": 0.1}, tmp_path / "cwd")
        assert seen is not None
        assert seen.params == {"lr": 0.1}
        assert sorted(read(Path(seen.cwd, "data/leslie"))) == ["a", "b", "c"]
        assert Path(seen.cwd, "labels.csv").read_text() == "1,2"


def test_a_hyperparameter_that_names_the_data_names_the_view(project: Path, tmp_path: Path):
    (data,) = declare([str(project / "data")], project).data
    made = view(fingerprint(data.path).listed, fingerprint(data.path), Path(data.path), tmp_path / "view")
    seen = seen_by(data, made, project, {"root": data.path, "lr": 0.1}, tmp_path / "cwd")
    assert seen == (str(project), {"root": str(made.folder), "lr": 0.1})


def test_an_absolute_path_within_the_code_cannot_be_led_elsewhere(project: Path, tmp_path: Path):
    (data,) = declare([str(project / "data")], project).data
    made = view(fingerprint(data.path).listed, fingerprint(data.path), Path(data.path), tmp_path / "view")
    assert seen_by(data, made, project, {"lr": 0.1}, tmp_path / "cwd") is None


def test_a_single_file_is_put_back_too(project: Path, tmp_path: Path):
    (data,) = declare(["labels.csv"], project).data
    made = view(fingerprint(data.path).listed, fingerprint(data.path), Path(data.path), tmp_path / "view")
    seen = seen_by(data, made, project, {}, tmp_path / "cwd")
    assert seen is not None
    assert Path(seen.cwd, "labels.csv").read_text() == "1,2"
    assert sorted(read(Path(seen.cwd, "data", "leslie"))) == ["a", "b", "c"]
