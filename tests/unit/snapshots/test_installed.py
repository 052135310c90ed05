"""Test the list of installed distributions, which is read from folders without importing them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_backend.environments.present import present
from kernel_backend.errors import NoEnvironment
from kernel_backend.snapshots import installed as module
from kernel_backend.snapshots.environment import editable_files, record
from kernel_backend.snapshots.installed import digest_of, own_files, own_root, sources


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a folder of distributions that comes first on the module path."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def distribution(site: Path, name: str, version: str = "1.0", url: dict | None = None, **files: str) -> Path:
    """Write a dist-info folder like pip does."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for file, text in files.items():
        (info / file).write_text(text)
    if url is not None:
        (info / "direct_url.json").write_text(json.dumps(url))
    return info


def editable(site: Path, project: Path, name: str = "mine") -> None:
    url = {"url": project.as_uri(), "dir_info": {"editable": True}}
    info = distribution(site, name, url=url, RECORD=f"__editable__.{name}.pth,,\n")
    (info.parent / f"__editable__.{name}.pth").write_text(f"{project / 'src'}\n")


def test_names_are_written_in_one_way_and_the_first_on_the_module_path_counts(site: Path):
    distribution(site, "My.Own_Thing", "2.1")
    distribution(site, "pydantic", "0.0.1")
    found = record(site.parent).distributions
    assert found["my-own-thing"] == "2.1"
    assert found["pydantic"] == "0.0.1"


def test_what_is_installed_while_the_kernel_runs_is_seen(site: Path):
    assert "late" not in record(site.parent).distributions
    distribution(site, "late")
    assert record(site.parent).distributions["late"] == "1.0"


def test_where_a_distribution_came_from_is_kept_without_its_secrets(site: Path):
    distribution(
        site,
        "vcs",
        url={
            "url": "https://ada:hunter2@host/r.git",
            "vcs_info": {"vcs": "git", "commit_id": "c0ffee"},
            "subdirectory": "p",
        },
    )
    distribution(
        site,
        "file",
        url={"url": "file:///a%20b/f.whl", "archive_info": {"hashes": {"sha256": "ab"}, "hash": "sha256=ab"}},
    )
    distribution(site, "uv", url={"url": "file:///a b/g.whl#sha256=cd", "archive_info": {}})
    distribution(site, "signed", url={"url": "https://host/s.whl?token=hunter2", "archive_info": {}})
    assert record(site.parent).urls.items() >= {
        ("vcs", "git+https://host/r.git@c0ffee#subdirectory=p"),
        ("file", "file:///a%20b/f.whl#sha256=ab"),
        ("uv", "file:///a%20b/g.whl#sha256=cd"),
        ("signed", "https://host/s.whl"),
    }


def test_a_broken_distribution_is_passed_over(site: Path):
    distribution(site, "bad", url=None, **{"direct_url.json": "{"})
    (site / "empty.egg-info").mkdir()
    (site / "-.dist-info").mkdir()
    distribution(site, "good")
    assert record(site.parent).distributions["good"] == "1.0"


def test_an_editable_distribution_is_known_by_its_sources(site: Path, tmp_path: Path):
    source = tmp_path / "project" / "src" / "mine"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("A = 1\n")
    (source / ".secret").write_text("hunter2")
    editable(site, tmp_path / "project")
    before = record(tmp_path)
    assert list(before.editable) == ["mine"]
    assert {name: text for name, text in editable_files().items() if "mine" in name} == {
        "editable/mine/mine/__init__.py": b"A = 1\n"
    }
    (source / "__init__.py").write_text("A = 2\n")
    after = record(tmp_path)
    assert before.editable != after.editable
    assert before.id != after.id


def test_an_editable_one_that_is_too_large_does_not_travel_but_is_known(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "project" / "src").mkdir(parents=True)
    (tmp_path / "project" / "src" / "weights.py").write_text("x" * 100)
    editable(site, tmp_path / "project")
    for name in ("kernel_backend.snapshots.environment.MAX_BYTES", "kernel_backend.snapshots.installed.MAX_BYTES"):
        monkeypatch.setattr(name, 99)
    assert "editable/mine/weights.py" not in editable_files()
    before = record(tmp_path).editable["mine"]
    (tmp_path / "project" / "src" / "weights.py").write_text("y" * 101)
    assert record(tmp_path).editable["mine"] != before


def test_a_packages_own_data_is_a_part_of_its_sources(tmp_path: Path):
    for name in ("src/p/__init__.py", "src/p/sizes.yaml", "src/loose.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert list(sources(tmp_path)) == ["src/p/__init__.py", "src/p/sizes.yaml"]


def test_sources_leave_out_what_is_built_hidden_or_another_environment(tmp_path: Path):
    for name in (
        "a.py",
        "p/b.py",
        "p/__pycache__/b.pyc",
        ".git/c",
        "venv/pyvenv.cfg",
        "venv/d.py",
        "p/.e",
        "f.egg-info/g.py",
        "notes.ipynb",
        "data/results.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert list(sources(tmp_path)) == ["a.py", "p/b.py"]


def test_a_file_that_may_not_be_read_and_a_dangling_link_do_not_stop_a_record(tmp_path: Path):
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    (tmp_path / "ünïcode\udcff.py").write_text("1")
    assert len(digest_of(sources(tmp_path))) == 64


def test_a_file_that_is_rewritten_has_another_digest_though_its_size_and_time_are_the_same(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 2**62)  # long after the file was written: its digest is remembered
    file = tmp_path / "a.py"
    file.write_text("1")
    before, first = file.stat(), digest_of(sources(tmp_path))
    assert digest_of(sources(tmp_path)) == first
    file.unlink()
    file.write_text("2")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest_of(sources(tmp_path)) != first


def test_daylights_own_files_are_those_of_a_worker():
    root = own_root()
    assert root is not None
    files = own_files(root)
    assert {"daylight/__init__.py", "kernel_backend/__init__.py", "jupyter_ext/__init__.py"} <= files.keys()
    assert not any("labextension" in name or "__pycache__" in name for name in files)
    assert record().daylight == digest_of(files)


def test_conda_packages_are_recorded_with_their_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "prefix" / "conda-meta"
    folder.mkdir(parents=True)
    (folder / "numpy-1.26-py_0.json").write_text(
        json.dumps({"name": "numpy", "version": "1.26", "build": "py_0", "sha256": "ab", "md5": "cd"})
    )
    (folder / "old-1-0.json").write_text(json.dumps({"name": "old", "version": "1", "build": "0", "md5": "cd"}))
    (folder / "broken.json").write_text("{")
    (folder / "history").write_text("==> 2026 <==")
    monkeypatch.setattr(module.sys, "prefix", str(tmp_path / "prefix"))
    assert record(tmp_path).conda == {"numpy": "1.26=py_0 sha256:ab", "old": "1=0 md5:cd"}


def test_horovods_flags_are_read_from_its_files(site: Path):
    distribution(site, "horovod", "0.28.1", WHEEL="Tag: cp311-cp311-linux_x86_64\n")
    (site / "horovod").mkdir()
    (site / "horovod" / "metadata.json").write_text('{"pytorch": "2.13.0+cpu",\n"dummy": "none"}')
    assert record(site.parent).horovod == {"pytorch": "2.13.0+cpu", "tag": "cp311-cp311-linux_x86_64"}


def test_another_interpreter_tells_what_it_holds_without_daylight_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = tmp_path.glob("venv/lib/python*/site-packages")
    distribution(site, "alone", "3.0")
    found = present(tmp_path / "venv" / "bin" / "python", {"OMP_NUM_THREADS": "1"})
    assert found.distributions == {"alone": "3.0"}
    assert found.daylight is None
    assert found.variables == {"OMP_NUM_THREADS": "1"}
    assert found.cpu == record(tmp_path).cpu


def test_this_interpreter_tells_the_same_of_itself_as_a_kernel_records(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(own_root()))
    assert present(Path(sys.executable)).id == record().id


def test_an_interpreter_that_is_gone_is_named(tmp_path: Path):
    with pytest.raises(NoEnvironment, match=r"nowhere/python is gone: .*--env locked"):
        present(tmp_path / "nowhere" / "python")
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho oh no >&2; exit 3\n")
    broken.chmod(0o755)
    with pytest.raises(NoEnvironment, match="oh no"):
        present(broken)
