"""Test that checkpoints accessed through an agent fulfil the contract of checkpoint storage."""

from __future__ import annotations

import pytest

from kernel_backend.unix_users.agents import Agents
from kernel_backend.unix_users.checkpoints import AgentCheckpoints
from tests.accounts.ourselves import Ourselves
from tests.contract.checkpoints_contract import CheckpointsContract
from tests.torture.files import Files


class TestAgentCheckpoints(CheckpointsContract):
    @pytest.fixture
    def place(self, agents: Agents) -> AgentCheckpoints:
        return AgentCheckpoints(agents, "dave", 1, 1, uid="")

    @pytest.fixture
    def again(self, agents: Agents):
        return lambda uid="": AgentCheckpoints(agents, "dave", 1, 1, uid)

    @pytest.fixture
    def files(self, ourselves: Ourselves) -> Files:
        return Files(str(ourselves.area("dave") / "checkpoints" / "1" / "1"))
