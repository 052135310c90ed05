"""Test that a node builds a locked environment on its own disk once, from an index or from the service's wheels."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.environments import uv
from kernel_backend.environments.storage import Environments
from kernel_backend.errors import NoEnvironment
from kernel_backend.model.experiment import Config
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.launch.staging import StagingRequest
from kernel_backend.model.snapshot import Environment
from kernel_backend.service.verbs.node_environments import NodeEnvironments
from kernel_backend.snapshots.archive import digest
from kernel_backend.snapshots.environment import record
from kernel_backend.staging import environment as on_node
from kernel_backend.staging.environment import LockedEnvironment
from kernel_backend.staging.node_home import KEPT_S, NodeHome
from kernel_backend.staging.refusal import refusal
from kernel_backend.staging.retry import StagingFailed
from kernel_backend.store.base import NewExperiment
from kernel_backend.store.sql import SqlStore
from tests.environments.wheels import wheel
from tests.support.disks import small_disk

PYTHON = Path(sys.executable)
REQUEST = StagingRequest(key="1.1-1", urls=("http://login:1",), uid=None, token="secret")


class Service:
    """Service for a launcher's requests, without HTTP; it can damage pieces of files."""

    def __init__(self, home: Path, environment: Environment) -> None:
        store = SqlStore(home / "trials.db")
        fields = {"name": "", "owner": "ada", "group": "ada", "snapshot": "0" * 64, "cwd": "/"}
        store.add_experiment(NewExperiment(config=Config(), params={}, python=str(PYTHON), **fields), 1.0)
        self._nodes = NodeEnvironments(store, lambda snapshot: environment, self._admit, home)
        self.fetched: list[tuple[str, int]] = []
        self.damaged = 0  # pieces that arrive damaged

    async def _admit(self, key: AttemptId) -> None:
        assert str(key) == REQUEST.key

    def attempt_environment(self, key: str, token: str, *, everything: bool) -> bytes:
        answer = asyncio.run(self._nodes.offer(AttemptId(1, 1, 1), everything=everything))
        return answer.model_dump_json().encode()

    def attempt_wheel(self, key: str, token: str, wheel: str, offset: int) -> bytes:
        self.fetched.append((wheel, offset))
        piece = asyncio.run(self._nodes.wheel(AttemptId(1, 1, 1), wheel, offset))
        if self.damaged:
            self.damaged -= 1
            return bytes([piece[0] ^ 1]) + piece[1:]
        return piece


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide an index that only the service's pip uses, while uv on the nodes has none."""
    monkeypatch.setattr(on_node, "LOOK_S", 0.05)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "nothing"))
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    uv.pip_settings.cache_clear()
    return wheel(tmp_path / "index").parent


@pytest.fixture
def service(tmp_path: Path, index: Path) -> Service:
    """Provide a service with the lock of an environment: one package from the index, one from a file."""
    home = tmp_path / "service"
    home.mkdir()
    own = wheel(tmp_path / "files", "own")
    changes = {"distributions": {"tiny": "1.0", "own": "1.0", "daylight": "0.1.0"}, "editable": {}, "conda": {}}
    urls = {"own": f"{own.as_uri()}#sha256={digest(own.read_bytes())}"}
    environment = record().model_copy(update={**changes, "urls": urls, "horovod": {}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_FIND_LINKS", str(index))
        lock = Environments(home).make_lock(environment, PYTHON)
    assert (len(lock), lock.unlocked) == (2, {})
    return Service(home, environment)


def locked(service: Service, home: NodeHome) -> LockedEnvironment:
    client: Any = service
    return LockedEnvironment(REQUEST, client, home)


@pytest.fixture
def home(tmp_path: Path) -> NodeHome:
    return NodeHome.of(tmp_path / "scratch", "n1")


def imports(python: Path, *names: str) -> bool:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-P", "-c", f"import {', '.join(names)}"]
    return subprocess.run(command, env=environ, check=False, capture_output=True, cwd="/").returncode == 0


def test_a_node_without_an_index_builds_it_from_the_wheels_of_the_service(service, home):
    environment = locked(service, home)
    python = environment.python(PYTHON)
    assert python.is_relative_to(home.path)
    assert imports(python, "tiny", "own", "kernel_backend")
    assert environment.note == ""
    assert [each.name for each in environment.folder.iterdir() if each.name.startswith(".wheels-")] == []


def test_a_node_with_an_index_takes_from_the_service_only_what_no_index_has(service, home, index, monkeypatch):
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    assert imports(locked(service, home).python(PYTHON), "tiny", "own")
    assert digest((index / "tiny-1.0-py3-none-any.whl").read_bytes()) not in dict(service.fetched)


def test_launchers_of_one_node_build_it_once(service, home):
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(locked(service, home).python(PYTHON))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 3
    assert sorted(service.fetched) == sorted(set(service.fetched))


def test_a_wheel_that_arrives_damaged_is_fetched_again_and_never_installed(service, home):
    service.damaged = 1
    assert imports(locked(service, home).python(PYTHON), "own")
    service.damaged = 1000
    other = NodeHome.of(home.path.parent, "n2")
    with pytest.raises(StagingFailed, match="arrived damaged 3 times"):
        locked(service, other).python(PYTHON)
    assert list(other.path.glob("environments/*/venv")) == []


def test_what_neither_the_node_nor_the_service_can_get_is_told_with_both_reasons(service, home, index):
    (index / "tiny-1.0-py3-none-any.whl").unlink()
    with pytest.raises(NoEnvironment, match=r"cannot be built: .*; nor can the service give its packages: .*tiny") as e:
        locked(service, home).python(PYTHON)
    failure, outcome = refusal(e.value, "n1", "/local")
    assert failure.message.endswith(", on n1: repair that there")
    assert (failure.of_storage, outcome) == (True, "failed")


def test_a_full_disk_is_told_with_the_node_and_what_to_do(service, tmp_path):
    with small_disk(tmp_path / "small", 400_000) as disk, pytest.raises((NoEnvironment, OSError)) as e:
        locked(service, NodeHome.of(disk, "n1")).python(PYTHON)
    failure, _ = refusal(e.value, "n1", "/local")
    assert "No space left" in failure.message or "is full" in failure.message
    assert failure.message.endswith("n1: free space there, or choose another `scratch` for the pool") or (
        failure.message == "the disk of n1 is full (/local): free space there, or choose another `scratch` for the pool"
    )


def test_one_that_is_in_use_is_kept_and_one_that_was_not_used_for_long_is_removed(service, home):
    environment = locked(service, home)
    environment.python(PYTHON)
    with home.in_use(environment.folder):
        assert home.clean(time.time() + 2 * KEPT_S) == []
    assert home.clean() == []
    assert home.clean(time.time() + 2 * KEPT_S) == [environment.folder]
