"""Hold the engines that run a user's gangs, on this machine and in the pools that the service names."""

from __future__ import annotations

import threading
from pathlib import Path

from kernel_backend.engines.local import LocalEngine
from kernel_backend.engines.make import EngineMaker
from kernel_backend.engines.slurm.engine import SlurmEngine
from kernel_backend.model.cluster.pools import Pool


class AgentEngines:
    """Engines of one user's gangs, with their state in the user's workspace.

    Those of pools are created on first use.
    """

    def __init__(self, home: Path) -> None:
        self.local = LocalEngine(home)
        self._make, self._pools = EngineMaker(home), dict[str, tuple[str, SlurmEngine]]()
        self._guard = threading.Lock()

    def of(self, pool: str | None) -> LocalEngine | SlurmEngine:
        """Return the engine of the pool with these settings (JSON); None stands for this machine."""
        return self.local if pool is None else self.of_pool(pool)

    def of_pool(self, pool: str) -> SlurmEngine:
        """Return the engine of the pool with these settings (JSON); changed settings give a new engine."""
        name = Pool.model_validate_json(pool).name
        with self._guard:
            settings, engine = self._pools.get(name, ("", None))
            if engine is None or settings != pool:
                engine = self._make.slurm(Pool.model_validate_json(pool))
                self._pools[name] = pool, engine
            return engine
