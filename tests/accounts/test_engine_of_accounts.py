"""Test that the engine of Unix accounts fulfils the contract of engines, even if its agent fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.unix_users.agents import Agents
from kernel_backend.unix_users.engine import UnixUserEngine
from kernel_backend.unix_users.notes import GangNotes
from tests.accounts.ourselves import Ourselves
from tests.engines.contract import EngineContract


class TestAccountsEngine(EngineContract):
    @pytest.fixture
    def home(self, ourselves: Ourselves) -> Path:
        return ourselves.area("dave")

    @pytest.fixture
    def engine(self, agents: Agents, tmp_path: Path) -> UnixUserEngine:
        return UnixUserEngine(agents, lambda number: "dave", GangNotes(tmp_path / "gangs"))

    @pytest.fixture
    def again(self, ourselves: Ourselves, tmp_path: Path):
        agents = Agents(ourselves)
        yield UnixUserEngine(agents, lambda number: "dave", GangNotes(tmp_path / "gangs"))
        agents.close()
