"""Test locking and building a small environment, with the real uv and a real package index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from kernel_backend.environments import uv
from kernel_backend.environments.present import present
from kernel_backend.environments.storage import LARGEST_WHEEL, Environments
from kernel_backend.errors import NoEnvironment
from kernel_backend.model.environments import packages
from kernel_backend.model.snapshot import Environment
from kernel_backend.snapshots.archive import digest
from kernel_backend.snapshots.environment import record
from tests.environments.index import needs_index
from tests.environments.wheels import wheel
from tests.support.disks import small_disk

PYTHON = Path(sys.executable)
pytestmark = [needs_index, pytest.mark.usefixtures("online")]


def small(**distributions: str) -> Environment:
    """Provide the environment of this interpreter, reduced to a few distributions."""
    found = {"six": "1.17.0", "packaging": "24.2", "daylight": record().distributions.get("daylight", "0.1.0")}
    changes = {"distributions": found | distributions, "urls": {}, "editable": {}, "conda": {}, "horovod": {}}
    return record().model_copy(update=changes)


@pytest.fixture
def kept(tmp_path: Path) -> Environments:
    return Environments(tmp_path)


@pytest.fixture
def no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove PYTHONPATH, so that an interpreter finds only installed packages."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


def test_what_is_built_holds_what_was_recorded_and_a_second_time_it_is_there(kept: Environments, no_path: None):
    environment = small()
    python = kept.build(environment, PYTHON)
    assert packages(environment, present(python)) == []
    assert present(python).id == environment.id
    before = python.lstat().st_ctime_ns  # of the link itself: what it leads to is this machine's, built or not
    assert kept.build(environment, PYTHON) == python
    assert python.lstat().st_ctime_ns == before
    lock = kept.lock(environment)
    assert lock is not None
    assert len(lock) == 2
    assert lock.unlocked == {}


def test_an_environment_of_an_interpreter_that_is_not_here_is_locked_all_the_same(kept: Environments):
    lock = kept.make_lock(small(), Path("/opt/notebooks/bin/python"))
    assert (len(lock), lock.unlocked) == (2, {})


def test_what_no_index_has_is_named_and_the_rest_is_locked(kept: Environments):
    environment = small(**{"six": "99.99", "surely-no-index-has-this": "1.0"})
    lock = kept.make_lock(environment, PYTHON)
    assert set(lock.unlocked) == {"six", "surely-no-index-has-this"}
    assert "six==99.99" in lock.unlocked["six"]
    assert lock.text.startswith("packaging==24.2 \\\n    --hash=sha256:")


def test_what_an_index_lacked_is_looked_for_again_after_a_day_or_when_it_is_asked_for(
    kept: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    request.addfinalizer(uv.pip_settings.cache_clear)
    environment = small(tiny="1.0")
    assert set(kept.make_lock(environment, PYTHON).unlocked) == {"tiny"}
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel(tmp_path / "found").parent))
    assert set(kept.make_lock(environment, PYTHON).unlocked) == {"tiny"}
    (file,) = (tmp_path / "environments").glob("*/lock.json")
    os.utime(file, (0, 0))
    lock = kept.make_lock(environment, PYTHON)
    assert lock.unlocked == {}
    assert kept.make_lock(environment, PYTHON, after=0.0) == lock


def test_a_wheel_from_a_file_is_kept_and_so_outlives_it(kept: Environments, tmp_path: Path, no_path: None):
    file = wheel(tmp_path / "elsewhere")
    url = f"{file.as_uri()}#sha256={digest(file.read_bytes())}"
    environment = small(tiny="1.0").model_copy(update={"urls": {"tiny": url}})
    kept.make_lock(environment, PYTHON)
    shutil.rmtree(tmp_path / "elsewhere")
    python = kept.build(environment, PYTHON)
    assert subprocess.run([python, "-c", "import tiny; print(tiny.VALUE)"], capture_output=True).stdout == b"1\n"
    assert present(python).id == environment.id


def test_a_wheel_whose_file_has_changed_or_is_gone_is_named(kept: Environments, tmp_path: Path):
    file = wheel(tmp_path / "elsewhere")
    urls = {"tiny": f"{file.as_uri()}#sha256={'0' * 64}", "gone": f"file:///nowhere/gone.whl#sha256={'1' * 64}"}
    environment = small(tiny="1.0", gone="1.0").model_copy(update={"urls": urls})
    lock = kept.make_lock(environment, PYTHON)
    assert "has other content now" in lock.unlocked["tiny"]
    assert "cannot be read now: No such file" in lock.unlocked["gone"]


def test_a_wheel_whose_file_never_ends_is_named(kept: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    os.mkfifo(tmp_path / "pipe.whl")
    with (tmp_path / "sparse.whl").open("wb") as file:
        file.truncate(LARGEST_WHEEL + 1)
    files = {"pipe": tmp_path / "pipe.whl", "sparse": tmp_path / "sparse.whl", "zero": Path("/dev/zero")}
    urls = {name: f"{file.as_uri()}#sha256={'0' * 64}" for name, file in files.items()}
    environment = small(**dict.fromkeys(files, "1.0")).model_copy(update={"urls": urls})
    unkept = kept._keep_files(environment)
    assert {name: "cannot be read now: it " in said for name, said in unkept.items()} == dict.fromkeys(files, True)


@pytest.mark.parametrize("damage", ["interpreter", "distribution", "everything"])
def test_a_broken_one_is_built_anew(kept: Environments, tmp_path: Path, damage: str):
    environment = small()
    python = kept.build(environment, PYTHON)
    venv = python.parents[1]
    if damage == "interpreter":
        python.unlink()
    elif damage == "distribution":
        shutil.rmtree(next(venv.glob("lib/python*/site-packages/six-*.dist-info")))
    else:
        shutil.rmtree(venv)
    assert kept.python(environment) is None
    assert kept.build(environment, PYTHON) == python
    assert kept.python(environment) == python


def test_two_that_build_the_same_one_build_it_once(tmp_path: Path):
    environment = small()
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(Environments(tmp_path).build(environment, PYTHON))) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0] == found[1]
    assert os.access(found[0], os.X_OK)
    assert not list((tmp_path / "environments" / environment.id).glob(".venv-*"))


def test_what_a_killed_build_left_is_cleared_away(kept: Environments, tmp_path: Path):
    environment = small()
    left = tmp_path / "environments" / environment.id / ".venv-killed"
    left.mkdir(parents=True)
    kept.build(environment, PYTHON)
    assert not left.exists()


def test_a_failed_build_says_uvs_words_and_leaves_nothing_half_made(
    kept: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    environment = small()
    kept.make_lock(environment, PYTHON)
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    with pytest.raises(NoEnvironment, match=r"the locked environment cannot be built: .*packaging"):
        kept.build(environment, PYTHON)
    assert sorted(each.name for each in (tmp_path / "environments" / environment.id).iterdir()) == [
        "lock",
        "lock.json",
        "lock.txt",
    ]


def test_offline_there_is_no_lock_and_the_wheels_are_kept_all_the_same(
    kept: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    environment = small()
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    with pytest.raises(NoEnvironment, match="the environment cannot be locked: "):
        kept.make_lock(environment, PYTHON)
    assert kept.lock(environment) is None
    assert environment.daylight is not None
    assert list((tmp_path / "snapshots" / "wheels" / environment.daylight).glob("daylight-*.whl"))


def test_without_uv_the_way_out_is_told(kept: Environments, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(uv, "find", lambda: None)
    with pytest.raises(NoEnvironment, match="pip install uv"):
        kept.make_lock(small(), PYTHON)


def test_a_python_that_is_nowhere_is_named(kept: Environments):
    environment = small().model_copy(update={"python": "3.2.9"})
    kept.make_lock(environment, PYTHON)
    with pytest.raises(NoEnvironment, match=r"3\.2"):
        kept.build(environment, PYTHON)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 8 * 2**20) as mounted:
        yield mounted


def test_on_a_full_disk_nothing_half_made_is_left_and_the_disk_is_named(disk: Path):
    environment = small(numpy=version("numpy"))
    kept = Environments(disk)
    with pytest.raises(NoEnvironment, match="No space left on device"):
        kept.build(environment, PYTHON)
    assert kept.python(environment) is None
    assert sorted(each.name for each in (disk / "environments" / environment.id).iterdir()) == [
        "lock",
        "lock.json",
        "lock.txt",
    ]
    (disk / "filler").write_bytes(b"x" * shutil.disk_usage(disk).free)
    with pytest.raises(NoEnvironment, match="No space left on device"):
        kept.build(small(), PYTHON)
