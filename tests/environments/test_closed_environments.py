"""Test environments and search classes on a service that is closed to code of users."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kernel_backend.environments.storage import Environments
from kernel_backend.environments.wheelhouse import Wheelhouse
from kernel_backend.errors import NoEnvironment, SearchFailed
from kernel_backend.model.search.records import Settings
from kernel_backend.model.search.space import Space
from kernel_backend.model.snapshot import Environment
from kernel_backend.snapshots.archive import pack
from kernel_backend.snapshots.environment import record
from kernel_backend.workspaces.base import SearchClass
from kernel_backend.workspaces.own import OwnWorkspace
from tests.environments.wheels import wheel

BACKEND = """
import pathlib
pathlib.Path({ran!r}).write_text("")
def get_requires_for_build_wheel(settings=None):
    return []
def prepare_metadata_for_build_wheel(folder, settings=None):
    info = pathlib.Path(folder, "evil-1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: evil\\nVersion: 1.0\\n")
    return info.name
def build_wheel(folder, settings=None, metadata=None):
    raise SystemExit(1)
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Return the file that code of a user writes."""
    return tmp_path / "ran"


@pytest.fixture
def python(tmp_path: Path, ran: Path) -> Path:
    """Provide an interpreter as a user may name one: it writes `ran`."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\ntouch {ran}\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def environment(tmp_path: Path, ran: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    """Provide an environment with a wheel of an index, and a package that its build script describes."""
    wheel(tmp_path / "links")
    files = {"pyproject.toml": PYPROJECT, "backend.py": BACKEND.format(ran=str(ran)), "PKG-INFO": "Name: evil\n"}
    with tarfile.open(tmp_path / "evil-1.0.tar.gz", "w:gz") as packed:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"evil-1.0/{name}")
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text.encode()))
    for program in ("UV", "PIP"):
        monkeypatch.setenv(f"{program}_FIND_LINKS", str(tmp_path / "links"))
        monkeypatch.setenv(f"{program}_NO_INDEX", "1")
    monkeypatch.delenv("UV_OFFLINE", raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        digest = hashlib.sha256((tmp_path / "evil-1.0.tar.gz").read_bytes()).hexdigest()
        url = f"http://127.0.0.1:{server.server_port}/evil-1.0.tar.gz#sha256={digest}"
        facts = record()
        own = facts.distributions["daylight"]
        changes = {"distributions": {"daylight": own, "tiny": "1.0", "evil": "1.0"}, "urls": {"evil": url}}
        yield facts.model_copy(update={**changes, "editable": {}, "conda": {}, "horovod": {}})
        server.shutdown()


def test_locking_runs_nothing_of_a_user_where_the_service_is_closed(
    tmp_path: Path, environment: Environment, python: Path, ran: Path
):
    lock = Environments(tmp_path, closed=True).make_lock(environment, python)
    assert not ran.exists()
    assert lock.text.startswith("tiny==1.0")
    assert lock.unlocked["evil"].endswith("which is no wheel")


def test_locking_elsewhere_runs_it(tmp_path: Path, environment: Environment, python: Path, ran: Path):
    lock = Environments(tmp_path).make_lock(environment, python)
    assert ran.exists()
    assert "evil @ http" in lock.text


def test_wheels_are_got_by_the_services_own_pip(tmp_path: Path, environment: Environment, python: Path, ran: Path):
    house = Wheelhouse(tmp_path, closed=True)
    lock = Environments(tmp_path, closed=True).make_lock(environment, python)
    house.download(environment, lock, python)
    assert [each.file for each in house.downloaded(environment) or ()] == ["tiny-1.0-py3-none-any.whl"]
    with pytest.raises(NoEnvironment, match="evil: no wheel is downloaded of it"):
        house.download(environment, lock.model_copy(update={"text": "evil @ " + environment.urls["evil"]}), python)
    assert not ran.exists()


def test_a_closed_service_asks_no_interpreter_and_builds_nothing(
    tmp_path: Path, environment: Environment, python: Path, ran: Path
):
    closed = Environments(tmp_path, closed=True)
    with pytest.raises(NoEnvironment, match=r"are not compared: this service runs no code of users"):
        closed.present(python)
    with pytest.raises(NoEnvironment, match=r"is not built: this service runs no code of users"):
        closed.build(environment, python)
    other = environment.model_copy(update={"daylight": "0" * 64})
    with pytest.raises(NoEnvironment, match=r"the service has another version"):
        closed.make_lock(other, python)
    assert not ran.exists()
    Environments(tmp_path).present(python)
    assert ran.exists()


def test_a_search_class_does_not_run_in_a_closed_service(tmp_path: Path, python: Path, ran: Path):
    settings = Settings(method="custom", source="Mine", units=1, trials=1, mode="max")
    asked = SearchClass(experiment=1, python=str(python), cwd="/", locked=False, settings=settings, space=Space())
    with pytest.raises(SearchFailed, match=r"^Mine cannot run: this service runs no code of users"):
        OwnWorkspace(tmp_path, closed=True).asker(asked, b"")
    _, archive = pack({"definition.py": b""})
    with pytest.raises(SearchFailed):
        OwnWorkspace(tmp_path).asker(asked, archive).interval()
    assert ran.exists()
