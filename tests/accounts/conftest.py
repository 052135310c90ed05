"""Provide agents that run as this process's own user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_backend.unix_users.agents import Agents
from tests.accounts.ourselves import Ourselves


@pytest.fixture
def ourselves(tmp_path: Path) -> Iterator[Ourselves]:
    made = Ourselves(tmp_path / "homes")
    yield made
    made.end()


@pytest.fixture
def agents(ourselves: Ourselves) -> Iterator[Agents]:
    made = Agents(ourselves, start_s=60.0, wait_s=60.0)
    yield made
    made.close()
