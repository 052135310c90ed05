"""A service that listens, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend import discovery
from kernel_backend.client import Client
from tests.api.served import DEFINITION, TOKEN, Served, StillEngine


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
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A service that the command line finds as it finds any other: by the files of its home."""
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
