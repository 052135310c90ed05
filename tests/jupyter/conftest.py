"""A Jupyter server, a home of its own, and services that it can find there."""

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
    """The home of whoever runs the Jupyter server; nothing serves it yet, and nothing is left there at the end."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("DAYLIGHT_HOME", str(home))
    for name in ("CONFIG", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path / "jupyter" / name.lower()))
    yield home
    World(home).close()


@pytest.fixture
def world(home: Path) -> World:
    """The home, whose service may be a process of its own."""
    return World(home, shared_forkserver=True)


@pytest.fixture
def served(home: Path) -> Iterator[Served]:
    """A service of that home, to be found there."""
    served = Served(home, StillEngine())
    discovery.write_private(home / "token", TOKEN)
    discovery.announce(home, "127.0.0.1", served.port)
    yield served
    served.stop()


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    """A client that asks the service itself."""
    client = served.client()
    yield client
    client.close()


@pytest.fixture
def hosted(home: Path, tmp_path: Path) -> Iterator[Hosted]:
    """The Jupyter server."""
    hosted = Hosted(tmp_path / "jupyter")
    yield hosted
    hosted.stop()
