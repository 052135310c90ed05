"""The engine for Slurm keeps the contract on a real Slurm, and is not caught in the traps of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from tests.engines.contract import EngineContract
from tests.support.slurm import Slurm


def pool(name: str = "gpu", **settings) -> Pool:
    return Pool(name=name, settings=PoolSettings(engine="slurm", **settings))


class TestSlurmEngine(EngineContract):
    @pytest.fixture
    def engine(self, site: Slurm, tmp_path: Path) -> SlurmEngine:
        return SlurmEngine(tmp_path / "home", pool(), "tests")

    @pytest.fixture
    def again(self, site: Slurm, tmp_path: Path) -> SlurmEngine:
        return SlurmEngine(tmp_path / "home", pool(), "tests")
