"""Test that earlier data is restored by links after files were added or renamed, and that trainings read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.data.base import Fingerprint
from kernel_backend.data.declared import declare, fingerprint
from kernel_backend.data.views import View, led, view
from kernel_backend.model.snapshot import Data


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


def seen(root: Path, then: Fingerprint, folders: Path, declared: Path | None = None) -> View:
    """Compare the files at `root` with the fingerprint `then`, declared at the same path or another."""
    sizes = {"files": len(then.files), "bytes": then.bytes, "digest": then.digest, "listed": "data/0.tsv"}
    data = Data(name="leslie", path=str(declared or root), **sizes)
    return view(data, then.listed, fingerprint(str(root)), root, folders)


def test_files_that_were_added_are_left_out_and_renamed_ones_have_their_names_again(project: Path, tmp_path: Path):
    root = project / "data" / "leslie"
    before = fingerprint(str(root))
    (root / "d").write_text("new")
    (root / "a").rename(root / "moved")
    found = seen(root, before, tmp_path / "views")
    assert found.missing == ()
    assert read(found.place) == {"a": "aaa", "b": "bbb", "c": "ccc"}


def test_what_has_been_edited_or_deleted_is_named_and_nothing_is_made(project: Path, tmp_path: Path):
    root = project / "data" / "leslie"
    before = fingerprint(str(root))
    (root / "a").write_text("xyz")
    (root / "b").unlink()
    found = seen(root, before, tmp_path / "views")
    assert found.missing == ("a", "b")
    assert not found.place.exists()


def test_a_view_is_used_again_and_what_a_training_left_in_it_is_not_seen(project: Path, tmp_path: Path):
    root = project / "data" / "leslie"
    before = fingerprint(str(root))
    (root / "d").write_text("new")
    first = seen(root, before, tmp_path / "views").place
    link = (first / "a").lstat()
    assert seen(root, before, tmp_path / "views").place == first
    again = (first / "a").lstat()  # nobody who reads it meanwhile finds it gone
    assert (again.st_ino, again.st_ctime_ns) == (link.st_ino, link.st_ctime_ns)
    (first / "a.cache").write_text("a training's own")
    second = seen(root, before, tmp_path / "views").place
    assert read(second) == {"a": "aaa", "b": "bbb", "c": "ccc"}
    assert (first / "a.cache").exists()


def test_a_name_that_leads_out_of_the_view_is_not_made(project: Path, tmp_path: Path):
    root = project / "data" / "leslie"
    (root / "a").rename(root / "moved")
    (tmp_path / "victim").symlink_to(project)
    known = fingerprint(str(root)).files[-1]
    for name in ("../../victim", str(tmp_path / "victim")):
        found = seen(root, Fingerprint((known._replace(name=name),)), tmp_path / "views")
        assert found.missing == (name,)
    assert (tmp_path / "victim").readlink() == project


def test_a_single_file_is_a_file_under_its_name_of_then(project: Path, tmp_path: Path):
    file = project / "labels.csv"
    before = fingerprint(str(file))
    renamed = file.rename(project / "labels-2024.csv")
    found = seen(renamed, before, tmp_path / "views", declared=file)
    assert (found.missing, found.place.name, found.place.read_text()) == ((), "labels.csv", "1,2")
    folder = project / "data" / "leslie"
    renamed.rename(folder / "in a folder.csv")
    found = seen(folder, before, tmp_path / "views", declared=file)
    assert (found.missing, found.place.name, found.place.read_text()) == ((), "labels.csv", "1,2")


def test_a_hyperparameter_that_is_the_path_of_the_data_or_below_it_becomes_its_place(project: Path):
    (data,) = declare([str(project / "data")], project).data
    params = {"root": data.path, "train": f"{data.path}/leslie/", "name": "data", "lr": 0.1}
    assert led(data, "/new", str(project), params, data.path) == {
        "root": "/new", "train": "/new/leslie/", "name": "data", "lr": 0.1,
    }  # fmt: skip
    assert led(data, "/new", str(project), {"root": "/old/"}, "/old") == {"root": "/new"}
    assert led(data, "/new", str(project), {"lr": 0.1}, data.path) is None
    assert led(data, data.path, str(project), {"lr": 0.1}, data.path) == {"lr": 0.1}


def test_a_word_that_happens_to_be_the_name_of_relative_data_is_left_alone(project: Path):
    (data,) = declare(["data"], project).data
    assert led(data, "/new", str(project), {"dataset": "data"}, data.path) == {"dataset": "data"}
    assert led(data, "s3://bucket/data", str(project), {"dataset": "data"}, data.path) == {
        "dataset": "s3://bucket/data"
    }
    assert led(data, "s3://bucket/data", str(project), {}, data.path) is None
