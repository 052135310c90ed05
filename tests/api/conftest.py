"""Provide a service that listens, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_backend import discovery
from kernel_backend.client import Client
from tests.api.served import DEFINITION, SECOND, TOKEN, Served, StillEngine
from tests.support.memory_folder import memory_folder
from tests.support.world import until


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Provide a folder in memory, as each service commits often."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, StillEngine())
    yield served
    served.stop()


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    client = served.client()
    yield client
    client.close()


@pytest.fixture
def two_pools(tmp_path: Path) -> Iterator[Any]:
    """Start a service with the pool `second` of two slots besides this machine's two, whose nodes are seen."""
    running: list[Served] = []

    def start(**settings: Any) -> tuple[Served, Client]:
        running.append(Served(tmp_path, StillEngine(), **({"pools": {"second": SECOND.to_json()}} | settings)))
        client = running[-1].client()
        until(lambda: all(pool.slots for pool in client.pools()), "the nodes of all pools are seen")
        return running[-1], client

    yield start
    for each in running:
        each.stop()


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Provide a service that the command line finds in the usual way: by the files of its home."""
    monkeypatch.setenv("DAYLIGHT_HOME", str(tmp_path))
    served = Served(tmp_path, StillEngine())
    discovery.write_private(tmp_path / "token", TOKEN)
    discovery.announce(tmp_path, "127.0.0.1", served.port)
    yield served
    discovery.withdraw(tmp_path)
    served.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "digits.py"
    path.write_text(DEFINITION)
    return path
