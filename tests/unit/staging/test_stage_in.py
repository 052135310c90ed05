"""Test that a node fetches a training's code once, checks its digest, and removes files of dead launchers."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kernel_backend.errors import Fenced, ServiceUnreachable
from kernel_backend.home import attempt_folder
from kernel_backend.launch.folder import AttemptFolder
from kernel_backend.model.experiment import Config
from kernel_backend.model.launch.launch_spec import LaunchSpec
from kernel_backend.model.launch.staging import StagingRequest
from kernel_backend.model.snapshot import Data, Snapshot
from kernel_backend.retry import RetryPolicy
from kernel_backend.staging import retry
from kernel_backend.staging.launch import taken
from kernel_backend.staging.node_home import FORMING_S, KEPT_S, NodeHome
from kernel_backend.staging.retry import StagingFailed
from kernel_backend.staging.stage_in import missing_data, stage_in
from tests.api.served import archive
from tests.support.builders import share
from tests.support.world import NO_ENVIRONMENT

ID, DATA = archive()


def spec(attempt: int = 1) -> LaunchSpec:
    return LaunchSpec(
        experiment=1,
        trial=1,
        attempt=attempt,
        config=Config(slots=1),
        params={},
        placement=(share((0,), "n1"),),
        python=sys.executable,
        cwd="/nowhere/to be seen",
        code="/service/attempts/1.1-1/code",
        snapshot=ID,
        checkpoints="s3://bucket/1/1",
        home="/service",
        staged=True,
    )


class Service:
    """Service as launchers use it: calls may fail at first, and downloads may be damaged."""

    def __init__(self, spec: LaunchSpec, downloads: list[bytes] | None = None) -> None:
        self.spec, self.downloads, self.fetched = spec, downloads or [], 0
        self.failures: list[Exception] = []

    def attempt_job(self, key: str, token: str) -> bytes:
        self._fail()
        return self.spec.model_dump_json().encode()

    def attempt_snapshot(self, key: str, token: str) -> bytes:
        self._fail()
        self.fetched += 1
        time.sleep(0.01)  # so that another launcher comes meanwhile
        return self.downloads.pop(0) if self.downloads else DATA

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without a pause."""
    monkeypatch.setattr(retry, "RETRY", RetryPolicy((0.001,), limit=30.0))


@pytest.fixture
def home(tmp_path: Path) -> NodeHome:
    return NodeHome.of(tmp_path / "scratch", "n1")


def staged(home: NodeHome, service: Service) -> AttemptFolder:
    """Stage an attempt in, and return its folder."""
    key = service.spec.id
    request = StagingRequest(key=str(key), urls=("http://login:1",), uid=None, token="secret")
    folder = AttemptFolder(attempt_folder(home.path, key))
    client: Any = service
    with ExitStack() as until, home.attempt(folder.path):
        stage_in(request, client, home, folder, until)
    return folder


def test_ranks_find_all_that_they_read_on_the_node(home):
    folder = staged(home, Service(spec()))
    job = folder.job()
    assert (job.home, job.code) == (str(home.path), str(folder.path / "code"))
    assert Path(job.cwd).is_relative_to(folder.path)
    assert (folder.path / "code" / "definition.py").exists()
    assert folder.token() == "secret"
    assert home.path.stat().st_mode & 0o077 == 0
    assert folder.path.stat().st_mode & 0o077 == 0


def test_a_snapshot_is_fetched_once_per_node_also_by_launchers_at_the_same_time(home):
    services = [Service(spec(attempt)) for attempt in range(1, 5)]
    threads = [threading.Thread(target=staged, args=(home, service)) for service in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(service.fetched for service in services) == 1
    assert all(AttemptFolder(attempt_folder(home.path, each.spec.id)).job() for each in services)


def test_a_damaged_download_is_repeated_and_never_used(home):
    service = Service(spec(), [DATA[:-1], DATA])
    assert (staged(home, service).path / "code" / "definition.py").exists()
    assert service.fetched == 2
    with pytest.raises(StagingFailed, match="arrived damaged 3 times"):
        staged(NodeHome.of(home.path.parent, "n2"), Service(spec(), [b"x", b"y", b"z"]))
    assert list((home.path.parent / "node-n2").glob("attempts/*/code")) == []


def test_a_copy_that_was_damaged_on_the_node_is_fetched_again(home):
    staged(home, Service(spec()))
    (home.path / "snapshots" / f"{ID}.zip").write_bytes(DATA[:-1])
    service = Service(spec(2))
    staged(home, service)
    assert service.fetched == 1


def test_a_service_that_is_away_is_asked_again_and_a_refusal_is_final(home):
    service = Service(spec())
    service.failures = [ServiceUnreachable("no route")] * 3
    staged(home, service)
    service.failures = [Fenced("attempt 1.1-1 is over: exit")]
    with pytest.raises(StagingFailed, match="is over"):
        staged(home, service)


def test_the_token_is_taken_out_of_the_environment(monkeypatch):
    request = StagingRequest(key="1.1-1", urls=("http://login:1",), uid=None, token="secret")
    environ = {"DAYLIGHT_STAGING": request.model_dump_json(), "HOME": "/h"}
    assert taken(environ) == request
    assert environ == {"HOME": "/h"}


def aged(path: Path, seconds: float) -> Path:
    """Set the modification times of a folder and its content to an old date."""
    for each in (*path.rglob("*"), path):
        os.utime(each, (time.time() - seconds,) * 2)
    return path


def test_folders_of_dead_launchers_and_old_snapshots_are_removed(home):
    dead, young, running = (staged(home, Service(spec(attempt))).path for attempt in (1, 2, 3))
    snapshot = home.path / "snapshots" / f"{ID}.zip"
    aged(dead, FORMING_S + 60)
    with home.attempt(running):
        aged(running, FORMING_S + 60)
        assert home.clean() == [dead]
    assert young.exists()
    assert running.exists()
    assert snapshot.exists()
    aged(snapshot, KEPT_S + 60)
    assert set(home.clean()) == {running, snapshot}


def test_declared_data_that_a_node_lacks_is_noted_with_its_name(tmp_path):
    def declared(name: str, path: str) -> Data:
        return Data(name=name, path=path, listed="data/1", files=1, bytes=1, digest="0")

    there = tmp_path / "there"
    there.touch()
    data = (declared("digits", "/nowhere/digits"), declared("there", str(there)), declared("far", "s3://bucket/far"))
    snapshot = Snapshot(version="test", numerics=1, pieces=(), roles_from=0, data=data, environment=NO_ENVIRONMENT)
    (told,) = missing_data(spec(), snapshot, "n2")
    assert told.startswith("n2 does not have /nowhere/digits, which --data declares: ")
    moved = spec().model_copy(update={"config": Config(slots=1, data_at={"digits": str(there)})})
    assert list(missing_data(moved, snapshot, "n2")) == []
