"""Provide one service process for tests that leave it alive; the other tests create their own world."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.world import World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world") / "home", shared_forkserver=True)
    made.serve()
    yield made
    made.close()


@pytest.fixture
def own_world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "home", shared_forkserver=True)
    made.serve()
    yield made
    made.close()
