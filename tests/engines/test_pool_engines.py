"""Test that several pools together fulfil the contract of an engine, here with a local engine as a second pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_backend.engines.local import LocalEngine
from kernel_backend.engines.marks import FolderMarks
from kernel_backend.engines.pools import PoolEngines
from kernel_backend.model.cluster.pools import Pool, PoolSettings
from tests.engines.contract import EngineContract
from tests.support.memory_engine import MemoryEngine

SECOND = Pool(name="second", settings=PoolSettings(engine="slurm"))


@pytest.mark.long
class TestPoolEngines(EngineContract):
    pool = SECOND.name

    @pytest.fixture
    def engine(self, home: Path) -> PoolEngines:
        return PoolEngines(MemoryEngine(), lambda pool: LocalEngine(home), [SECOND], FolderMarks(home))

    @pytest.fixture
    def again(self, home: Path) -> PoolEngines:
        return PoolEngines(MemoryEngine(), lambda pool: LocalEngine(home), [SECOND], FolderMarks(home))
