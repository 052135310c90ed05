"""A service that listens, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.client import Client
from tests.api.served import Served, StillEngine


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
