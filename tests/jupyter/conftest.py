"""Provide a Jupyter server with its own home, and services that it can find there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend import discovery
from kernel_backend.client import Client
from tests.api.served import TOKEN, Served, StillEngine
from tests.jupyter.hosted import Hosted
from tests.support.world import World


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide the home of the Jupyter server's user, without a service; check at the end that nothing is left."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("DAYLIGHT_HOME", str(home))
    for name in ("CONFIG", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path / "jupyter" / name.lower()))
    yield home
    World(home).close()


@pytest.fixture
def world(home: Path) -> World:
    """Provide the home with a service that runs as a separate process."""
    return World(home, shared_forkserver=True)


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    """Provide a service of that home, which the Jupyter server can find."""
    served = Served(home, StillEngine())
    discovery.write_private(home / "token", TOKEN)
    discovery.announce(home, "127.0.0.1", served.port)
    yield served
    served.stop()


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    """Provide a client of the service itself."""
    client = served.client()
    yield client
    client.close()


@pytest.fixture
def hosted(home: Path, tmp_path: Path) -> Iterator[Hosted]:
    """Provide the Jupyter server."""
    hosted = Hosted(tmp_path / "jupyter")
    yield hosted
    hosted.stop()
